//! Quick calls are answered in one frame, and run in the task of their request. Time is paused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, Engine, ExchangeHandle, Facts, Fence, IncomingMessage, InitializeError,
    InitializeOk, ManualClock, Options, Principal, Routing, Rules, SessionHandle, SessionId, SystemEntropy,
    Time,
};
use steadfast_http::{Config, Endpoint, ResponseBody};
use steadfast_store::MemoryStore;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower_service::Service as _;

mod denied;
mod stateless;

/// How long the head of a response waits for a call.
const HEAD_WAIT: Duration = Duration::from_millis(10);

/// A backend that performs the words of a call's method in order and then answers. A number is a
/// wait in milliseconds; see [`denied::act`] for the other words.
#[derive(Clone, Default)]
struct Worker(Arc<State>);

#[derive(Default)]
struct State {
    go: Notify,
    done: AtomicUsize,
    /// The number of tasks when each call was done.
    tasks: Mutex<Vec<usize>>,
}

impl Backend for Worker {
    fn initialize(
        &self,
        facts: Arc<Facts>,
        _request: IncomingMessage,
    ) -> BoxFuture<Result<InitializeOk, InitializeError>> {
        let result = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#.into();
        Box::pin(async move { Ok(InitializeOk { result, revision: facts.revision }) })
    }

    fn opened(&self, _session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        Box::pin(async { Ok(()) })
    }

    fn restored(&self, _session: SessionHandle) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn route(&self, _session: &SessionHandle, _request: &IncomingMessage) -> Routing {
        Routing::LOCAL
    }

    fn invalidate_route(&self, _facts: &Arc<Facts>, _fence: &Fence) {}

    fn readers_present(&self, _sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn draining(&self) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn call(&self, call: CallHandle, request: IncomingMessage) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let worker = Arc::clone(&self.0);
        Box::pin(async move {
            for word in request.method.split(' ') {
                match word.parse() {
                    Ok(0) => {}
                    Ok(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    Err(_) => denied::act(&worker, &call, word).await?,
                }
            }
            worker.tasks.lock().unwrap().push(tasks());
            worker.done.fetch_add(1, Ordering::SeqCst);
            Ok(r#"{"done":true}"#.into())
        })
    }

    fn serve(&self, exchange: ExchangeHandle, request: IncomingMessage) -> BoxFuture<Answer> {
        Box::pin(stateless::serve(exchange, request))
    }

    fn notify(&self, _session: SessionHandle, _notification: IncomingMessage) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn closed(&self, _session: &SessionHandle) {}

    fn admits(
        &self,
        _session: SessionHandle,
        _principal: &Principal,
        _http: &http::request::Parts,
    ) -> BoxFuture<bool> {
        Box::pin(async { false })
    }

    fn ended_elsewhere(&self, _session: SessionId) {}
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// An endpoint with a session.
struct Scene {
    endpoint: Endpoint,
    worker: Arc<State>,
    session: String,
}

impl Scene {
    async fn start() -> Self {
        Self::with(Config::default()).await
    }

    async fn with(config: Config) -> Self {
        let worker = Worker::default();
        let store = Arc::new(MemoryStore::new(Rules::default()));
        let clock = Arc::new(ManualClock::new(Time(1_800_000_000_000)));
        let backend = Arc::new(worker.clone());
        let entropy = Arc::new(SystemEntropy);
        let engine = Engine::start(store, backend, clock, entropy, Options::default(), Vec::new()).await;
        let endpoint = Endpoint::new(engine.unwrap(), config);
        let mut scene = Self { endpoint, worker: worker.0, session: String::new() };
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
        let opened = scene.send("POST", &[], initialize).await;
        scene.session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        scene
    }

    fn send(
        &self,
        verb: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> impl Future<Output = Response<ResponseBody>> + use<> {
        let mut request = Request::builder().method(verb).uri("/mcp").header("host", "localhost");
        let usual = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        for (name, value) in usual.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        if !self.session.is_empty() {
            request = request.header("mcp-session-id", &self.session);
        }
        let answered =
            self.endpoint.clone().call(request.body(Full::<Bytes>::from(body.to_owned())).unwrap());
        async { answered.await.unwrap() }
    }

    fn call(&self, id: u32, method: &str) -> impl Future<Output = Response<ResponseBody>> + use<> {
        self.send("POST", &[], &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#))
    }
}

fn answer(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"done":true}}}}"#)
}

async fn piece(response: &mut Response<ResponseBody>) -> String {
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

/// The id in the first event of a response.
fn first_id(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_quick_call_is_answered_in_one_frame_without_a_task() {
    let scene = Scene::start().await;
    let before = tasks();
    for (id, ms) in [(1, 0), (2, 1), (3, 9)] {
        let begun = Instant::now();
        let mut response = scene.call(id, &ms.to_string()).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(ms));
        // The length is known, so head and events are written together.
        let size = response.body().size_hint().exact();
        let text = piece(&mut response).await;
        assert_eq!(size, Some(text.len() as u64), "{ms} ms");
        assert!(text.starts_with("id: ") && text.contains(&answer(id)), "{text}");
        assert!(response.body().is_end_stream());
    }
    // The second and third calls wait, so the timer's task runs.
    let tasks = [before, before + 1, before + 1];
    assert_eq!(*scene.worker.tasks.lock().unwrap(), tasks, "the task of the request runs the call");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_longer_is_not_waited_for() {
    let scene = Scene::start().await;
    let before = tasks();
    let begun = Instant::now();
    let mut response = scene.call(1, "15").await;
    assert!(begun.elapsed() >= HEAD_WAIT && begun.elapsed() < Duration::from_millis(15));
    assert_eq!(response.body().size_hint().exact(), None);
    let first = piece(&mut response).await;
    assert!(first.starts_with("id: ") && !first.contains("result"), "{first}");
    assert!(piece(&mut response).await.contains(&answer(1)));
    assert_eq!(begun.elapsed(), Duration::from_millis(15));
    assert_eq!(*scene.worker.tasks.lock().unwrap(), [before + 1]);
}

/// The client disconnects while its request drives the call. The call continues, and its answer
/// waits for a client that resumes the stream.
#[tokio::test(start_paused = true)]
async fn a_call_survives_a_client_that_disconnects_early() {
    let scene = Scene::start().await;
    let text = piece(&mut scene.call(1, "0").await).await;
    let (stream, tag) =
        (first_id(&text).split('-').next().unwrap(), first_id(&text).rsplit('-').next().unwrap());
    let next = stream.parse::<u64>().unwrap() + 1;
    let gone = tokio::time::timeout(HEAD_WAIT / 2, scene.call(2, "wait")).await;
    assert!(gone.is_err(), "it was answered before the client went");
    scene.worker.go.notify_one();
    let done = async {
        while scene.worker.done.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("the call goes on");
    let position = format!("{next}-0-{tag}");
    let mut resumed = scene.send("GET", &[("last-event-id", &position)], "").await;
    assert_eq!(resumed.status(), 200);
    assert!(piece(&mut resumed).await.contains(&answer(2)));
}
