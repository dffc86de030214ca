//! Both eras at once, on one endpoint: every answer is the right one and of the right form.

use crate::support::session::{said, tool_call};
use crate::support::{Backing, Host, Modern, Reply, Request, Rng, Session, Value, json};

crate::on_every_store!(five_hundred_requests_of_both_eras_at_once, a_handshake_beside_stateless_requests);

const REQUESTS: usize = 500;

/// What is known of a request before it is answered.
struct Sent {
    request: Request,
    id: Value,
    text: String,
    progress: usize,
    modern: bool,
}

/// A mixture. Stateless requests have ids that many others have at the same time.
fn mixture(host: &Host, sessions: &[Session]) -> Vec<Sent> {
    let mut rng = Rng::seeded(20_260_728);
    let client = Modern::to(host);
    (0..REQUESTS)
        .map(|no| {
            let text = format!("text {no}");
            let mut steps = vec![format!("sleep:{}", rng.below(30))];
            let progress = rng.below(3);
            for _ in 0..progress {
                steps.push("progress".to_owned());
                steps.push(format!("sleep:{}", rng.below(5)));
            }
            let arguments = json!({"steps": steps, "text": text});
            let modern = rng.below(2) == 0;
            let id = if modern { json!(rng.below(5)) } else { json!(no) };
            let request = if modern {
                client.clone().meta("progressToken", id.clone()).tool(id.clone(), "steps", arguments)
            } else {
                sessions[rng.below(sessions.len())].post(&tool_call(id.clone(), "steps", arguments))
            };
            Sent { request, id, text, progress, modern }
        })
        .collect()
}

fn judge(sent: &Sent, reply: &Reply) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let messages = reply.messages();
    let (answer, progress) = messages.split_last().expect("an answer");
    assert_eq!((&answer["id"], said(answer)), (&sent.id, sent.text.clone()));
    assert_eq!(progress.len(), sent.progress, "{messages:?}");
    assert!(progress.iter().all(|message| message["params"]["progressToken"] == sent.id), "{messages:?}");
    assert_eq!(answer["result"].get("resultType").is_some(), sent.modern, "{answer}");
    assert_eq!(reply.header("mcp-session-id").is_none(), sent.modern);
    if reply.is_stream() {
        let frames = reply.frames();
        let mut events = frames.iter().filter(|frame| frame.message().is_some());
        assert!(events.all(|frame| frame.id.is_none() == sent.modern), "{frames:?}");
    }
}

async fn five_hundred_requests_of_both_eras_at_once(backing: Backing) {
    let host = Host::plain(backing).await;
    let mut sessions = Vec::new();
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25", "2025-11-25"] {
        sessions.push(Session::at(&host, revision).await);
    }
    let mut running = tokio::task::JoinSet::new();
    for sent in mixture(&host, &sessions) {
        running.spawn(async move {
            let reply = sent.request.send().await;
            judge(&sent, &reply);
            sent.modern
        });
    }
    let of_modern = running.join_all().await.into_iter().filter(|modern| *modern).count();
    assert!((200..300).contains(&of_modern), "{of_modern}");
    super::stateless_endings::nothing_is_left(&host).await;
}

/// The handshake of old works where its stateless namesake does not exist.
async fn a_handshake_beside_stateless_requests(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = Modern::to(&host);
    let refused = client.ask(1, "initialize", json!({"protocolVersion": "2025-11-25"})).await;
    assert_eq!(refused.refusal(), (404, -32601));
    let session = Session::open(&host).await;
    // The session is none of the stateless request's business, and lives on.
    let request = client.tool("m", "echo", json!({"text": "modern"})).header("Mcp-Session-Id", &session.id);
    let reply = request.send().await;
    assert_eq!((said(&reply.answer()), reply.header("mcp-session-id")), ("modern".to_owned(), None));
    assert_eq!(session.say(1, "echo", json!({"text": "legacy"})).await, "legacy");
    let mut newest = crate::support::session::initialize("2026-07-28");
    newest["id"] = json!("i");
    let reply = client.http.post(&newest).send().await;
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25", "the newest that has sessions");
}
