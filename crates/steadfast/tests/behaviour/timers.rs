//! Waits that go by the machine's clock: a silent stream is kept alive, an old connection is sent
//! away.

use std::time::Duration;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, json, within};

crate::on_every_store!(a_silent_stream_gets_comments, an_old_connection_is_sent_away_and_loses_nothing);

const SOON: Duration = Duration::from_millis(20);

async fn a_silent_stream_gets_comments(backing: Backing) {
    let host = Host::start(backing, |builder| builder.keep_alive(SOON)).await;
    let session = Session::open(&host).await;
    let mut call = session.tool(1, "gate", json!({"name": "a", "text": "done"})).stream().await;
    let mut listener = session.listen().stream().await;
    for stream in [&mut call, &mut listener] {
        assert!(stream.next().await.unwrap().is_priming());
        for _ in 0..3 {
            let frame = stream.next().await.unwrap();
            assert_eq!(
                (frame.comment.as_deref(), &frame.data, &frame.id),
                (Some("keep-alive"), &None, &None)
            );
        }
    }
    host.gates.open("a");
    assert_eq!(said(&call.message().await), "done");
}

async fn an_old_connection_is_sent_away_and_loses_nothing(backing: Backing) {
    let host = Host::start(backing, |builder| builder.keep_alive(SOON).max_connection_age(2 * SOON)).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "done"})).stream().await;
    let frames = within("the end of the connection", stream.rest()).await;
    assert!(frames.last().unwrap().retry.is_some(), "it is told to come back: {frames:?}");
    assert!(frames.iter().all(|frame| frame.message().is_none()));
    host.gates.open("a");
    let priming = frames[0].id.clone().unwrap();
    assert_eq!(said(&session.resume(&priming).send().await.answer()), "done");
}
