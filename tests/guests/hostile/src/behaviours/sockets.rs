//! Tries to reach others without HTTP.

use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let port = crate::query(&request, "port").unwrap_or_default();
    let mut had = vec![];
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let address = format!("{host}:{port}");
        if TcpStream::connect(&address).is_ok() {
            had.push(format!("tcp {address}"));
        }
        if UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.send_to(b"x", &address)).is_ok() {
            had.push(format!("udp {address}"));
        }
    }
    if TcpListener::bind("127.0.0.1:0").is_ok() {
        had.push("a listener".to_owned());
    }
    if ("localhost", 80).to_socket_addrs().is_ok() || ("example.com", 80).to_socket_addrs().is_ok() {
        had.push("a name".to_owned());
    }
    crate::answer(out, &format!("had {had:?}"));
}
