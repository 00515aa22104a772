//! Which addresses nobody may reach, whatever the host is called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses nobody may reach: all but those of the public internet, and but the operator's exceptions.
#[derive(Debug, Clone, Default)]
pub struct AddressRules {
    /// The exceptions. An IPv4-mapped IPv6 address counts as its IPv4 address.
    pub allowed: Vec<ipnet::IpNet>,
}

impl AddressRules {
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed.iter().any(|network| network.contains(&address))
            || match address {
                IpAddr::V4(address) => public_v4(address),
                IpAddr::V6(address) => public_v6(address),
            }
    }
}

/// Not in IANA's registry of special IPv4 addresses, nor multicast or reserved.
fn public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            // Azure's metadata and host agent, which is on every machine there.
            | [168, 63, 129, 16]
    )
}

/// Unicast that is routed everywhere. What carries an IPv4 address may be delivered there, so that address is judged.
fn public_v6(address: Ipv6Addr) -> bool {
    let v4 = |high: u16, low: u16| public_v4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        // IPv4-compatible (`::` and `::1` are among them) and NAT64.
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        // 6to4.
        [0x2002, high, low, ..] => v4(high, low),
        // Teredo: its server, and its client with every bit flipped.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            v4(high, low) && v4(!client_high, !client_low)
        }
        // Protocol assignments, benchmarks and documentation.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_permitted() {
        let none = AddressRules::default();
        for denied in "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 \
             127.0.0.1 127.255.255.255 168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 \
             192.0.2.7 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 \
             239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 \
             ::ffff:169.254.169.254 64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8 \
             64:ff9b::1:8.8.8.8 2002:7f00:1:: 2002:a9fe:a9fe::1 2001::1 2001:0:808:808::80ff:fffe \
             2001:0:7f00:1::f7f7:f7f7 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1 3fff:fff::1 fc00::1 \
             fd00:ec2::254 fdff::1 fe80::1 febf::1 fec0::1 ff02::1 100::1 1fff::1 4000::1"
            .split_whitespace()
        {
            assert!(!none.permits(denied.parse().unwrap()), "{denied}");
        }
        for permitted in
            "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.0.0.1 128.0.0.1 \
             168.63.129.17 169.253.0.1 172.15.0.1 172.32.0.1 192.0.1.1 192.0.3.1 192.167.0.1 198.17.0.1 \
             198.20.0.1 203.0.114.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 \
             2001:0:808:808::f7f7:f7f7 2001:200::1 2001:4860:4860::8888 2606:4700::1 3fff:1000::1"
                .split_whitespace()
        {
            assert!(none.permits(permitted.parse().unwrap()), "{permitted}");
        }
        let some = rules(&["127.0.0.0/8", "fd00::/8"]);
        for permitted in ["127.0.0.1", "::ffff:127.0.0.1", "fd00:ec2::254", "8.8.8.8"] {
            assert!(some.permits(permitted.parse().unwrap()), "{permitted}");
        }
        for denied in ["10.0.0.1", "::1", "64:ff9b::127.0.0.1", "2002:7f00:1::"] {
            assert!(!some.permits(denied.parse().unwrap()), "{denied}");
        }
    }

    fn rules(allowed: &[&str]) -> AddressRules {
        AddressRules { allowed: allowed.iter().map(|network| network.parse().unwrap()).collect() }
    }
}
