//! A name that stands for several addresses is as many replicas.

use std::collections::BTreeMap;
use std::net::IpAddr;

use steadfast_client::Uri;
use steadfast_upstream::Resolver;

use crate::support::{Backing, Host, Relay, Session, json};

use super::call;
use super::forgetful::Forgetful;
use super::replicas::{status, until};

#[tokio::test]
async fn sessions_are_spread_over_the_addresses_of_a_name_and_healed_there() {
    // All of 127/8 is this machine.
    let addresses: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
    let (a, b) = (Forgetful::start("a", |_| None).await, Forgetful::start("b", |_| None).await);
    let at_a = Relay::before(&a.server.url()).await;
    let port = at_a.url().port_u16().unwrap();
    let _at_b = Relay::at((addresses[1], port).into(), &b.server.url()).await;
    let url: Uri = format!("http://servers.test:{port}/mcp").parse().unwrap();
    let host = Host::before(Backing::Memory, [url.clone()], move |builder| {
        let list = BTreeMap::from([("servers.test".to_owned(), addresses.to_vec())]);
        builder.upstream(|config| config.resolver = Resolver::Listed(list))
    })
    .await;
    let names: Vec<_> = host.upstream().replicas().into_iter().map(|replica| replica.name).collect();
    assert_eq!(names, addresses.map(|address| format!("{url}#{address}:{port}")));
    let (here, there) = (Session::open(&host).await, Session::open(&host).await);
    assert_eq!(((a.opened(), b.opened()), status(&host)), ((1, 1), vec![(true, 1), (true, 1)]));
    let expect = format!("servers.test:{port}");
    assert!(a.server.log().iter().chain(&b.server.log()).all(|one| one.header("host") == Some(&*expect)));
    at_a.kill().await;
    assert_eq!(call(&here, 1, "t").await["result"], json!({}));
    assert_eq!(call(&there, 1, "t").await["result"], json!({}));
    assert_eq!((host.upstream().failovers(), a.opened(), b.opened()), (1, 1, 2));
    assert_eq!(status(&host), [(false, 0), (true, 2)]);
    at_a.revive();
    until(&host, &[(true, 0), (true, 2)]).await;
    Session::open(&host).await;
    assert_eq!((a.opened(), status(&host)), (2, vec![(true, 1), (true, 2)]));
}
