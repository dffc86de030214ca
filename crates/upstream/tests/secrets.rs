//! Credentials, session ids and pages of proxies are written nowhere: not to logs, whatever their
//! level, and not by `Debug`. What the operator has to know is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use http::HeaderValue;
use steadfast_upstream::{Config, Credential, Program, Server as Kind};
use support::server::{Reply, Server};
use support::session::initialize;
use support::{Backing, Host, Http, Relay, Session, json, within};
use tracing_subscriber::filter::LevelFilter;

/// Everything that was logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const SECRETS: [&str; 4] = ["client-secret", "own-secret", "operator-secret", "upstream-session-secret"];

/// Opens a session, loses it, heals it, meets every kind of error, and ends it.
async fn live(credential: Credential) -> String {
    let server = Server::with_sessions(|request| match (request.verb.as_str(), request.method()) {
        ("POST", "initialize") => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"logging": {}}, "serverInfo": {"name": "s", "version": "1"}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Some(Reply::json_with(200, "mcp-session-id: upstream-session-secret\r\n", &body))
        }
        ("POST", "tools/call") if request.calls("lost") => Some(Reply::status(404)),
        ("POST", "tools/call") if request.calls("broken") => Some(Reply::default()),
        ("POST", "tools/call") => Some(Reply::status(401)),
        ("GET", _) => Some(Reply::status(500)),
        ("DELETE", _) => Some(Reply::status(403)),
        _ => None,
    })
    .await;
    let relay = Relay::before(&server.url()).await;
    let host = Host::before(Backing::Memory, [relay.url()], move |builder| {
        builder.upstream(|config| {
            config.credential = credential.clone();
            config.unavailable_timeout = std::time::Duration::from_millis(100);
            let Kind::Http { headers, .. } = &mut config.server else { panic!("it is HTTP") };
            headers.insert("x-key", HeaderValue::from_static("operator-secret"));
        })
    })
    .await;
    let with = |request: support::Request| request.header("Authorization", "Bearer client-secret");
    let reply = with(Http::to(&host).post(&initialize("2025-11-25"))).send().await;
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    let session = Session { http: Http::to(&host), id, revision: "2025-11-25".to_owned() };
    let mut said = String::new();
    for (id, tool) in ["lost", "broken", "denied"].into_iter().enumerate() {
        said += &with(session.tool(id, tool, json!({}))).send().await.text();
    }
    relay.kill().await;
    said += &with(session.tool(9, "away", json!({}))).send().await.text();
    relay.revive();
    said += &format!("{:?} {:?}", host.upstream(), host.upstream().config());
    with(session.delete()).send().await;
    server.until("the DELETE", |log| log.iter().any(|request| request.verb == "DELETE")).await;
    said
}

/// What all tests here log.
fn logs() -> Logged {
    static LOGGED: OnceLock<Logged> = OnceLock::new();
    let listen = || {
        let logged = Logged::default();
        let writer = logged.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        logged
    };
    LOGGED.get_or_init(listen).clone()
}

#[cfg(unix)]
#[tokio::test]
async fn what_a_program_writes_on_the_side_is_logged_by_the_short_name_of_its_session() {
    let logged = logs();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/server.py");
    let arguments = vec![script.display().to_string(), "good".to_owned()];
    let program = Program { command: "python3".to_owned(), arguments, ..Program::default() };
    let host = Host::before(Backing::Memory, [], move |builder| {
        builder.upstream(|config| *config = Config::stdio(program.clone()))
    })
    .await;
    let session = Session::open(&host).await;
    let answer = session.call(1, "crash", json!({"words": "words on the side"})).await;
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(message.contains("exit status: 7") && !answer.to_string().contains("on the side"), "{answer}");
    let name = format!("session=\"{}\"", session.session_id().short());
    let is_logged = |level: &str, words: &str| {
        let logs = logged.text();
        logs.lines().any(|line| line.contains(level) && line.contains(&name) && line.contains(words))
    };
    let both = async {
        while !is_logged("INFO", "words on the side")
            || !is_logged("WARN", "last_stderr_line=\"words on the side\"")
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    within("the words", both).await;
    assert!(!logged.text().contains(&session.id));
}

#[tokio::test]
async fn nothing_secret_is_written() {
    let logged = logs();
    let own = HeaderValue::from_static("Bearer own-secret");
    let mut said = String::new();
    for credential in [Credential::Forwarded, Credential::Own(own), Credential::None] {
        said += &live(credential).await;
    }
    let logs = logged.text();
    assert!(logs.contains("the server had lost an upstream session"), "logs are heard: {logs}");
    for secret in SECRETS {
        assert!(!logs.contains(secret), "{secret} in {logs}");
        assert!(!said.contains(secret), "{secret} in {said}");
    }
}

/// The lines of the log that contain all of these.
fn lines(logged: &Logged, words: &[&str]) -> Vec<String> {
    let text = logged.text();
    let found = text.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    found.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_page_of_a_proxy_is_not_logged() {
    let logged = logs();
    let server = Server::with_sessions(|request| {
        let page = "<html><title>page-of-a-proxy</title></html>";
        match request.verb.as_str() {
            "POST" if request.calls("html") => Some(Reply::new(504, "content-type: text/html\r\n", page)),
            "POST" if request.calls("liar") => Some(Reply::new(504, "content-type: text/plain\r\n", page)),
            "POST" if request.calls("text") => {
                let text = format!("plain\n{}page-of-a-proxy", "x".repeat(500));
                Some(Reply::new(403, "content-type: text/plain\r\n", &text))
            }
            "GET" => Some(Reply::new(500, "content-type: text/html\r\n", page)),
            "DELETE" => Some(Reply::new(500, "content-type: text/html\r\n", page)),
            _ => None,
        }
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| builder).await;
    let session = Session::open(&host).await;
    for (id, tool) in ["html", "liar", "text"].into_iter().enumerate() {
        let answer = session.call(id, tool, json!({})).await.to_string();
        assert!(!answer.contains("page-of-a-proxy") && !answer.contains("plain"), "{answer}");
    }
    session.delete().send().await;
    server.until("the DELETE", |log| log.iter().any(|request| request.verb == "DELETE")).await;
    assert_eq!(lines(&logged, &["page-of-a-proxy"]), Vec::<String>::new());
    let begins = lines(&logged, &["status=403", r#"begins="plain\nxxx"#]);
    assert!(begins.len() == 1 && begins[0].contains("DEBUG"), "{begins:?}");
}

/// Once for each upstream session, with the remedy.
#[tokio::test]
async fn a_server_that_mixes_up_its_answers_is_named_in_the_log() {
    let logged = logs();
    let server = Server::with_sessions(|request| request.calls("lost").then(|| Reply::status(202))).await;
    let warnings = |session: &Session, words: &[&str]| {
        let name = format!("session=\"{}\"", session.session_id().short());
        lines(&logged, &[&["WARN", &name], words].concat()).len()
    };
    let host = Host::before(Backing::Memory, [server.url()], |builder| builder).await;
    for _ in 0..2 {
        let session = Session::open(&host).await;
        for id in 0..3 {
            session.call(id, "lost", json!({})).await;
        }
        let remedy = ["`concurrency = 1`", "`--concurrency 1`", "held no answer"];
        assert_eq!(warnings(&session, &remedy), 1, "{}", logged.text());
    }
    // Where that is so already it is no remedy.
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| config.calls.concurrency = std::num::NonZeroUsize::new(1).into())
    })
    .await;
    let session = Session::open(&host).await;
    session.call(1, "lost", json!({})).await;
    assert_eq!(warnings(&session, &["held no answer"]), 1);
    assert_eq!(warnings(&session, &["--concurrency"]), 0);
}

/// Ids are logged as JSON.
#[tokio::test]
async fn an_answer_that_no_call_waits_for_is_logged_with_its_id() {
    let logged = logs();
    let server = Server::with_sessions(|request| {
        let stray = json!({"jsonrpc": "2.0", "id": "stray-7", "result": {}});
        request.calls("stray").then(|| Reply::stream().event(&stray).answer(request, &json!({})))
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| builder).await;
    let session = Session::open(&host).await;
    assert_eq!(session.call(1, "stray", json!({})).await["result"], json!({}));
    let found = lines(&logged, &["stray-7"]);
    assert!(
        found.len() == 1 && found[0].contains("DEBUG") && found[0].contains(r#"id="stray-7""#),
        "{found:?}"
    );
}
