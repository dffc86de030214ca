//! A server behind the proxy, and the HTTP endpoint by which a client controls both. Requests and
//! their JSON responses:
//!
//! - `POST /cut?after=3,2`: cut the connection of the next call after 3 events, and the connection
//!   that resumes it after 2
//! - `GET /cut`: was the call cut, resumed and answered as it should? `{"ok": …, "detail": …}`
//! - `GET /call`: the session and id of the last call, whether it was cancelled, whether its
//!   session was deleted
//! - `POST /restart`: kill the server and start it again on its store

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::child_server::ChildServer;
use crate::proxy::{Proxy, Request};
use steadfast_test_setup::Failure;

/// The server process ends when this value is dropped.
#[derive(Debug)]
pub(super) struct ControlledServer {
    server: Mutex<ChildServer>,
    /// The upstream server, if `server` is a gateway. It is never restarted.
    _upstream: Option<ChildServer>,
    proxy: Proxy,
}

impl ControlledServer {
    pub(super) fn start(
        mut server: ChildServer,
        upstream: Option<ChildServer>,
    ) -> Result<Arc<Self>, Failure> {
        let proxy = Proxy::start()?;
        proxy.point_at(server.start()?);
        Ok(Arc::new(Self { server: Mutex::new(server), _upstream: upstream, proxy }))
    }

    /// Returns the address that clients use.
    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Starts the control endpoint and returns its address. It serves until this value is dropped.
    pub(super) fn control(self: &Arc<Self>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let server = Arc::downgrade(self);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let Some(server) = server.upgrade() else { return };
                // Fails if the client has closed its connection.
                let _ = server.serve(connection);
            }
        });
        Ok(address)
    }

    fn serve(&self, mut connection: TcpStream) -> io::Result<()> {
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        let Some(request) = Request::read(&mut connection, &mut Vec::new())? else { return Ok(()) };
        let (status, response) = match self.handle(&request) {
            Ok(response) => ("200 OK", response),
            Err(detail) => ("400 Bad Request", json!({"ok": false, "detail": detail})),
        };
        let body = response.to_string();
        let head = "Content-Type: application/json\r\nConnection: close";
        write!(connection, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn handle(&self, request: &Request) -> Result<Value, String> {
        let (path, query) = request.target().split_once('?').unwrap_or_else(|| (request.target(), ""));
        match (request.verb(), path) {
            ("POST", "/cut") => {
                let cuts = query.strip_prefix("after=").unwrap_or_default().split(',').map(str::parse);
                let cuts = cuts.collect::<Result<Vec<usize>, _>>().map_err(|error| error.to_string())?;
                self.proxy.exchanges().plan_cuts(cuts);
                Ok(json!({"ok": true}))
            }
            ("GET", "/cut") => {
                let verdict = self.proxy.exchanges().verdict();
                let ok = verdict.is_ok();
                let (Ok(detail) | Err(detail)) = verdict;
                Ok(json!({"ok": ok, "detail": detail}))
            }
            ("GET", "/call") => Ok(self.proxy.exchanges().last_call()),
            ("POST", "/restart") => {
                let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
                server.kill();
                let address = server.start().map_err(|failure| format!("{failure:?}"))?;
                self.proxy.point_at(address);
                Ok(json!({"ok": true}))
            }
            (verb, path) => Err(format!("there is no {verb} {path}")),
        }
    }
}
