//! A backend that denies the client's credentials in the middle of a session: the head of the
//! response waits for its decision.

use http::StatusCode;
use steadfast_engine::backend::Denied;
use steadfast_engine::{Class, Denial};
use steadfast_http::ResponseMode;

use super::*;

const WAIT: Duration = Duration::from_secs(2);
const CHALLENGE: &str = r#"Bearer resource_metadata="https://s.example/x""#;

/// Performs one word of a method.
pub(super) async fn act(worker: &State, call: &CallHandle, word: &str) -> Result<(), ErrorObject> {
    match word {
        "wait" => worker.go.notified().await,
        "say" => {
            let said = r#"{"jsonrpc":"2.0","method":"notifications/said"}"#.into();
            call.notify(Class::Notification, said).await.unwrap();
        }
        "admit" => call.accept_credentials(),
        _ => {
            let reason = if word == "deny" { Denied::Unauthenticated } else { Denied::Forbidden };
            let error = ErrorObject::new(-32603, word);
            call.deny(Denial { reason, challenge: Some(CHALLENGE.to_owned()), error: error.clone() });
            return Err(error);
        }
    }
    Ok(())
}

async fn waiting(response: ResponseMode) -> Scene {
    Scene::with(Config { auth_wait: WAIT, response, ..Config::default() }).await
}

async fn rest(response: Response<ResponseBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_denial_in_time_is_the_head_of_the_response() {
    for mode in [ResponseMode::Stream, ResponseMode::Adaptive, ResponseMode::Json] {
        let scene = waiting(mode).await;
        // The id can be reused, because each call has ended when its client sees the refusal.
        for (method, status, after) in [
            ("deny", StatusCode::UNAUTHORIZED, 0),
            ("5 deny", StatusCode::UNAUTHORIZED, 5),
            ("1900 deny", StatusCode::UNAUTHORIZED, 1900),
            ("1900 forbid", StatusCode::FORBIDDEN, 1900),
        ] {
            let begun = Instant::now();
            let response = scene.call(7, method).await;
            assert_eq!(response.status(), status, "{mode:?}, {method}");
            assert_eq!(begun.elapsed(), Duration::from_millis(after), "{mode:?}, {method}");
            assert_eq!(response.headers()["www-authenticate"], CHALLENGE);
            assert_eq!(response.headers()["content-type"], "application/json");
            let word = method.rsplit(' ').next().unwrap();
            let error = format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32603,"message":"{word}"}}}}"#);
            assert_eq!(rest(response).await, error);
        }
    }
}

/// The head waits no longer than configured. After that, the error is an ordinary answer.
#[tokio::test(start_paused = true)]
async fn a_denial_that_comes_too_late_is_an_answer() {
    let scene = waiting(ResponseMode::Stream).await;
    let begun = Instant::now();
    let mut response = scene.call(7, "3000 deny").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(begun.elapsed() >= WAIT && begun.elapsed() < WAIT + 4 * HEAD_WAIT, "{:?}", begun.elapsed());
    let first = piece(&mut response).await;
    assert!(first.starts_with("id: ") && !first.contains("deny"), "{first}");
    assert!(rest(response).await.contains(r#""message":"deny""#));
    // A JSON response has no head before the answer.
    let scene = waiting(ResponseMode::Json).await;
    assert_eq!(scene.call(7, "3000 deny").await.status(), StatusCode::UNAUTHORIZED);
}

/// The head is sent with the first message of the backend, whatever it is.
#[tokio::test(start_paused = true)]
async fn the_head_is_sent_with_the_first_message() {
    let scene = waiting(ResponseMode::Stream).await;
    for (id, method) in [(1, "500 admit 5000"), (2, "500 say 5000"), (3, "500 say 500 deny"), (4, "500")] {
        let begun = Instant::now();
        let mut response = scene.call(id, method).await;
        assert_eq!(response.status(), StatusCode::OK, "{method}");
        let waited = begun.elapsed().as_millis();
        assert!((500..540).contains(&waited), "{method}: {waited} ms");
        assert!(piece(&mut response).await.starts_with("id: "), "{method}");
    }
}

/// One status for several calls would discard the answers of the others.
#[tokio::test(start_paused = true)]
async fn calls_of_a_batch_have_an_answer_each() {
    let mut scene = waiting(ResponseMode::Stream).await;
    scene.session = String::new();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let opened = scene.send("POST", &[], initialize).await;
    scene.session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let both = r#"[{"jsonrpc":"2.0","id":1,"method":"deny"},{"jsonrpc":"2.0","id":2,"method":"0"}]"#;
    let response = scene.send("POST", &[], both).await;
    assert_eq!(response.status(), StatusCode::OK);
    let text = rest(response).await;
    assert!(text.contains(r#""message":"deny""#) && text.contains(&answer(2)), "{text}");
}

/// The head does not wait if `auth_wait` is zero.
#[tokio::test(start_paused = true)]
async fn the_head_does_not_wait_by_default() {
    let scene = Scene::start().await;
    let begun = Instant::now();
    let response = scene.call(1, "15 deny").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(begun.elapsed() < Duration::from_millis(15));
}
