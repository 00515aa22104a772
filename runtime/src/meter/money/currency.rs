//! Currencies, by their codes. Source: ISO 4217, list one (currencies in use), without funds, metals and test codes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency {
    code: &'static str,
    digits: u32,
}

/// Codes by the digits that their amounts have after the point.
const CODES: [(u32, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC \
         CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR \
         JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD \
         NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN \
         SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

impl Currency {
    /// Three letters.
    pub fn code(self) -> &'static str {
        self.code
    }

    /// Digits of its amounts after the point: those of its minor unit.
    pub fn digits(self) -> u32 {
        self.digits
    }

    fn all() -> impl Iterator<Item = Self> {
        CODES
            .iter()
            .flat_map(|(digits, codes)| codes.split_whitespace().map(|code| Self { code, digits: *digits }))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl FromStr for Currency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|currency| currency.code == text).ok_or_else(|| {
            let shown: String = text.chars().take(10).collect();
            format!("`{}` is not a currency's code of ISO 4217, such as EUR", shown.escape_default())
        })
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code)
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Currency {
    fn schema_name() -> Cow<'static, str> {
        "Currency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let codes: Vec<&str> = Self::all().map(Self::code).collect();
        json_schema!({ "description": "A currency's code of ISO 4217.", "type": "string", "enum": codes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_have_their_digits() {
        for (code, digits) in [("EUR", 2), ("USD", 2), ("JPY", 0), ("KWD", 3), ("CLF", 4)] {
            assert_eq!(code.parse::<Currency>().unwrap().digits(), digits);
        }
        for wrong in ["", "eur", "EURO", "XXX", "EU"] {
            assert!(wrong.parse::<Currency>().unwrap_err().contains("is not a currency's code"), "{wrong}");
        }
        let mut codes: Vec<_> = Currency::all().map(Currency::code).collect();
        assert!(codes.iter().all(|code| code.len() == 3));
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all, "each is there once");
    }
}
