//! `concurrency = "auto"` with gateways that share their sessions: all of them know the verdict.

use steadfast_upstream::{SerialReason, Verdict};

use crate::support::{Backing, Host, Session, within};

use super::blob_server::{PINGS, blob_server};
use super::parallel_calls::{assert_nothing_is_lost, count_in_parallel, gateway, pings, verdict};

async fn until_known(host: &Host, expected: Verdict) {
    within("the verdict", async {
        while verdict(host) != Some(expected) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Half of the parallel calls come to each gateway, before any of them knows the verdict.
#[tokio::test]
async fn two_gateways_send_one_call_at_a_time() {
    let (server, blobs) = blob_server(|_| None).await;
    let here = gateway(Backing::shared(), &server).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    assert_nothing_is_lost(&[&session, &session.via(&there)], &blobs).await;
}

#[tokio::test]
async fn a_verdict_is_known_at_a_second_gateway_and_after_a_restart() {
    let serial = Verdict::Serial(SerialReason::Check);
    let (server, blobs) = blob_server(|_| None).await;
    let mut here = gateway(Backing::shared(), &server).await;
    let session = Session::open(&here).await;
    count_in_parallel(&[&session], 0, 2).await;
    until_known(&here, serial).await;
    let there = here.beside().await;
    let elsewhere = Session::open(&there).await;
    count_in_parallel(&[&elsewhere], 0, 2).await;
    assert_eq!(verdict(&there), Some(serial));
    here.restart().await;
    let session = session.via(&here);
    count_in_parallel(&[&session], 2, 2).await;
    assert_eq!(verdict(&here), Some(serial));
    assert_eq!((pings(&server), blobs.peak()), (PINGS, 1), "one check for all");
}
