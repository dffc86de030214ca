//! Requests of 2026-07-28: the head waits for the answer, and for a decision about the credentials.
//! A request that takes longer is stored, and its response can be resumed.

use http::StatusCode;
use steadfast_engine::backend::Denied;
use steadfast_engine::{Class, Denial};

use super::*;

/// How long a request may take before it is stored.
const PROMOTED_AFTER: u128 = 300;
const AUTH_WAIT: Duration = Duration::from_secs(2);

/// Performs the words of the method, like [`Worker::call`]. `server/discover` takes a second.
pub(super) async fn serve(exchange: ExchangeHandle, request: IncomingMessage) -> Answer {
    let words = if request.method == "server/discover" { "1000" } else { &request.method };
    for word in words.split('_') {
        match word {
            "say" => {
                let said = r#"{"jsonrpc":"2.0","method":"notifications/said"}"#.into();
                exchange.notify(Class::Notification, said).unwrap();
            }
            "admit" => exchange.accept_credentials(),
            "deny" => {
                let error = ErrorObject::new(-32603, word);
                let reason = Denied::Unauthenticated;
                exchange.deny(Denial { reason, challenge: None, error: error.clone() });
                return Err(error);
            }
            ms => tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await,
        }
    }
    Ok(r#"{"done":true}"#.into())
}

async fn post(scene: &Scene, method: &str) -> Response<ResponseBody> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{"_meta":{{
            "io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    scene.send("POST", &headers, &body).await
}

async fn stored(scene: &Scene) -> u64 {
    // The scene itself has a session.
    scene.endpoint.engine().store().usage().await.unwrap().sessions - 1
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_answered_soon_is_not_stored() {
    let scene = Scene::start().await;
    for (method, expect) in [
        ("0", answer(7)),
        ("299", answer(7)),
        ("100_say_100_say_99", format!("{0}{0}event: message\ndata: {1}\n\n", SAID, answer(7))),
    ] {
        let begun = Instant::now();
        let mut response = post(&scene, method).await;
        assert!(begun.elapsed().as_millis() < PROMOTED_AFTER, "{method}");
        assert_eq!(piece(&mut response).await, expect);
        assert!(response.body().is_end_stream(), "{method}");
        assert_eq!(stored(&scene).await, 0, "{method}");
    }
}

/// The program behind a gateway may have to start first.
#[tokio::test(start_paused = true)]
async fn a_slow_discovery_is_plain_json() {
    let scene = Scene::start().await;
    let mut response = post(&scene, "server/discover").await;
    assert_eq!(piece(&mut response).await, answer(7));
    assert_eq!(stored(&scene).await, 0);
}

const SAID: &str = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/said\"}\n\n";

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_longer_is_stored_with_what_it_has_said() {
    let scene = Scene::start().await;
    let begun = Instant::now();
    let response = post(&scene, "say_310").await;
    assert_eq!(begun.elapsed().as_millis(), PROMOTED_AFTER);
    assert_eq!(stored(&scene).await, 1);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let token = first_id(&text).strip_suffix(".0.7").unwrap().to_owned();
    let id = |seq: u32| format!("event: message\nid: {token}.{seq}.7\n");
    let said = SAID.replacen("event: message\n", &id(1), 1);
    let expect = format!("id: {token}.0.7\nretry: 1000\ndata: \n\n{said}{}data: {}\n\n", id(2), answer(7));
    assert_eq!(text, expect);
}

/// A client fetches new credentials when it sees a status.
#[tokio::test(start_paused = true)]
async fn the_head_waits_for_the_decision_about_the_credentials() {
    let scene = Scene::with(Config { auth_wait: AUTH_WAIT, ..Config::default() }).await;
    for (method, status, after) in [
        ("200_deny", StatusCode::UNAUTHORIZED, 200),
        ("1900_deny", StatusCode::UNAUTHORIZED, 1900),
        ("3000_deny", StatusCode::OK, 2000),
        ("500_admit_5000", StatusCode::OK, 500),
        ("500_say_5000", StatusCode::OK, 500),
        ("admit_5000", StatusCode::OK, 300),
        ("1900", StatusCode::OK, 1900),
    ] {
        let begun = Instant::now();
        let response = post(&scene, method).await;
        assert_eq!(response.status(), status, "{method}");
        // The coarse timer is exact to a tick.
        let waited = begun.elapsed().as_millis();
        assert!((after..after + 5).contains(&waited), "{method}: {waited} ms");
    }
}
