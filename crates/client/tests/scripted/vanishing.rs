//! Servers whose machine disappears without closing connections. Only the kernel's TCP keepalive
//! can detect that.

use std::time::Duration;

use crate::support::{Reply, Server, config, connect, within};

/// The unit of timers in /proc/net/tcp: ticks per second.
const TICKS: u64 = 100;

/// The remaining time of the keepalive timer of each connection to this port.
fn keep_alives(port: u16) -> Vec<Duration> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let timers = table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let (_, remote) = fields.get(2)?.split_once(':')?;
        // Timer kind 02 is keepalive.
        let ticks = fields.get(5)?.strip_prefix("02:")?;
        (u16::from_str_radix(remote, 16).ok()? == port).then(|| u64::from_str_radix(ticks, 16).ok())?
    });
    timers.map(|ticks| Duration::from_millis(ticks * 1000 / TICKS)).collect()
}

/// The call has been sent and acknowledged, so only a keepalive probe can detect that the server is
/// gone.
#[tokio::test]
async fn a_connection_that_waits_for_an_answer_is_probed() {
    let server = Server::with_sessions(|request| request.calls("t").then(|| Reply::stream().hang())).await;
    let client = connect(config(&server), ()).await;
    let _call = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    server.until("the call", |log| log.iter().any(|request| request.calls("t"))).await;
    let port = server.url().port_u16().expect("a port");
    let probed = async {
        loop {
            // Until the request is acknowledged, the retransmission timer runs instead.
            match keep_alives(port).into_iter().max() {
                Some(next) => return next,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let next = within("a connection that is probed", probed).await;
    assert!(next <= Duration::from_secs(15), "two hours are the kernel's own idea: {next:?}");
}
