//! A gateway in front of servers that do whatever a script says, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

mod scripted {
    mod absent;
    mod annotations;
    mod blob_server;
    mod counted;
    mod credentials;
    mod endings;
    mod eras;
    mod expired;
    mod forgetful;
    mod framing;
    mod front;
    mod frozen;
    mod gaps;
    mod healing;
    mod heartbeats;
    mod hostile;
    mod identity;
    mod leases;
    mod misrouted;
    mod mixed;
    #[cfg(target_os = "linux")]
    mod names;
    mod nodes;
    mod outcomes;
    mod parallel_calls;
    mod parallel_nodes;
    #[cfg(unix)]
    mod programs;
    mod replicas;
    mod restarts;
    mod server_requests;
    mod standalone;
    mod successors;
    mod together;
    mod tokens;
    mod turns;
    mod unanswered;

    use crate::support::server::{Request, Server};
    use crate::support::session::tool_call;
    use crate::support::{Backing, Host, Session, Value, json};

    /// A gateway in front of one server, with sessions in memory.
    async fn gateway(server: &Server) -> Host {
        Host::before(Backing::Memory, [server.url()], |builder| builder).await
    }

    /// A gateway in front of one server, and a session that a client has opened there.
    async fn opened(server: &Server) -> (Host, Session) {
        let host = gateway(server).await;
        let session = Session::open(&host).await;
        (host, session)
    }

    /// Calls a tool that the script knows and gives its answer.
    async fn call(session: &Session, id: u64, tool: &str) -> Value {
        session.post(&tool_call(id, tool, json!({}))).send().await.answer()
    }

    /// What a client is told of a call that failed here: the reason, and whether to try again.
    fn reason(answer: &Value) -> (String, bool) {
        let data = &answer["error"]["data"];
        let reason = data["reason"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (reason.to_owned(), data["retryable"].as_bool().unwrap_or_else(|| panic!("{answer}")))
    }

    /// How often the server got a call of this tool.
    fn calls(server: &Server, tool: &str) -> usize {
        server.count(|request: &Request| request.calls(tool))
    }
}
