//! An endpoint of ours that passes everything on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use http_body_util::BodyExt as _;
use steadfast_client::transport::{Http, Transport};
use steadfast_client::{Client, ClientHandler, Era, Limits, Timeouts};
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, Engine, ExchangeHandle, Facts, Fence, IncomingMessage, InitializeError,
    InitializeOk, Options, Principal, Routing, Rules, SessionHandle, SessionId, SystemClock, SystemEntropy,
};
use steadfast_http::{Endpoint, listen};
use steadfast_store::MemoryStore;
use steadfast_upstream::Config;
use steadfast_upstream::stateless::Forwarder;
use steadfast_wire::rpc::ErrorObject;

use crate::support::{Server, Value, json, within};

/// No response can be resumed, so that its form does not depend on how long the request takes.
fn options() -> Options {
    Options { resume_grace: Duration::ZERO, ..Options::default() }
}

/// Passes on what needs no session.
struct Passing {
    forwarder: Arc<Forwarder>,
    transport: Arc<dyn Transport>,
    url: Uri,
}

impl Backend for Passing {
    fn opened(&self, _session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        Box::pin(async { Ok(()) })
    }

    fn restored(&self, _session: SessionHandle) -> BoxFuture<()> {
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

    fn initialize(
        &self,
        _: Arc<Facts>,
        _: IncomingMessage,
    ) -> BoxFuture<Result<InitializeOk, InitializeError>> {
        Box::pin(async { Err(ErrorObject::new(-32603, "no sessions here").into()) })
    }

    fn call(&self, _: CallHandle, _: IncomingMessage) -> BoxFuture<Result<Bytes, ErrorObject>> {
        Box::pin(async { Err(ErrorObject::new(-32603, "no sessions here")) })
    }

    fn serve(&self, exchange: ExchangeHandle, request: IncomingMessage) -> BoxFuture<Answer> {
        let (forwarder, transport) = (Arc::clone(&self.forwarder), Arc::clone(&self.transport));
        let url = self.url.clone();
        Box::pin(async move {
            let answer = forwarder.forward(&transport, &url, &exchange, &request).await;
            answer.unwrap_or_else(Answer::from)
        })
    }

    fn notify(&self, _: SessionHandle, _: IncomingMessage) -> BoxFuture<()> {
        Box::pin(async {})
    }
}

pub(crate) struct Front {
    address: SocketAddr,
    pub(crate) engine: Arc<Engine>,
}

impl Front {
    /// In front of a server that is reached over HTTP.
    pub(crate) async fn of(url: Uri) -> Self {
        Self::with(Config::http(vec![url])).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let steadfast_upstream::Server::Http { replicas, .. } = &config.server else { panic!("no address") };
        let url = replicas[0].clone();
        let transport = Arc::new(Http::new(&config.timeouts, &config.limits));
        Self::over(transport, url, &config).await
    }

    pub(crate) async fn over(transport: Arc<dyn Transport>, url: Uri, config: &Config) -> Self {
        Self::start(transport, url, config, options()).await
    }

    /// An endpoint that keeps so many bytes for a client that does not read them.
    pub(crate) async fn keeping(exchange_bytes: usize, url: Uri) -> Self {
        let config = Config::http(vec![url.clone()]);
        let transport = Arc::new(Http::new(&config.timeouts, &config.limits));
        Self::start(transport, url, &config, Options { exchange_bytes, ..options() }).await
    }

    async fn start(transport: Arc<dyn Transport>, url: Uri, config: &Config, options: Options) -> Self {
        let backend = Arc::new(Passing { forwarder: Arc::new(Forwarder::new(config)), transport, url });
        let store = Arc::new(MemoryStore::new(Rules::default()));
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let engine = Engine::start(store, backend, clock, entropy, options, Vec::new()).await.unwrap();
        let endpoint = Endpoint::new(Arc::clone(&engine), steadfast_http::Config::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listen::serve(listener, endpoint, listen::Limits::default(), std::future::pending()));
        Self { address, engine }
    }

    pub(crate) fn url(&self) -> Uri {
        format!("http://{}/mcp", self.address).parse().unwrap()
    }

    /// A client of this endpoint that speaks the stateless revision alone.
    pub(crate) async fn client(&self, owner: impl ClientHandler) -> Client {
        let mut config = steadfast_client::Config::new(self.url());
        config.era = Era::Stateless;
        // Ids that no forwarder chooses.
        config.first_id = 700;
        within("a connection", Client::connect(config, owner)).await.expect("the server is there")
    }

    /// Posts a request and gives the status, the headers and the text of the answer.
    pub(crate) async fn post(&self, method: &str, params: Value) -> (u16, HeaderMap, String) {
        self.post_with(method, params, &[]).await
    }

    pub(crate) async fn post_with(
        &self,
        method: &str,
        params: Value,
        headers: &[(&str, &str)],
    ) -> (u16, HeaderMap, String) {
        let http = Http::new(&Timeouts::default(), &Limits::default());
        let response = within("a head", http.send(self.request(method, params, headers))).await.unwrap();
        let (head, body) = response.into_parts();
        let body = within("a body", body.collect()).await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) fn request(
        &self,
        method: &str,
        mut params: Value,
        headers: &[(&str, &str)],
    ) -> http::Request<Bytes> {
        let mut request = http::Request::post(self.url())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(name) = params["name"].as_str() {
            request = request.header("mcp-name", name);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let body = json!({"jsonrpc": "2.0", "id": "mine", "method": method, "params": params});
        request.body(body.to_string().into()).unwrap()
    }
}

/// Waits until the connection to the server is closed: at once, and not only when the engine loses
/// its patience.
pub(crate) async fn closed(server: &Server) {
    let closed = server.until("the end of the connection", |log| log.iter().any(|one| one.verb == "CLOSED"));
    tokio::time::timeout(Duration::from_secs(5), closed).await.expect("it is closed at once");
}
