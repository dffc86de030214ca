//! What a client may ask of the stage it plays on, over HTTP, with JSON for an answer:
//!
//! - `POST /cut?after=3,2`: cut the connection of the next call after 3 events, that of its resumption after 2
//! - `GET /cut`: was it cut, resumed and answered as it should? `{"ok": …, "detail": …}`
//! - `GET /call`: the last call's session and id, and whether it was cancelled and its session deleted
//! - `POST /restart`: kill the server and start it again on the same store

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::cutter::Cutter;
use super::http::Request;
use crate::failure::Failure;
use crate::served::Served;

/// A server behind a proxy. The server ends with this value.
#[derive(Debug)]
pub(super) struct Stage {
    server: Mutex<Served>,
    /// What the server is in front of, if it is a gateway. Nobody restarts that.
    _behind: Option<Served>,
    cutter: Cutter,
}

impl Stage {
    pub(super) fn open(mut server: Served, behind: Option<Served>) -> Result<Arc<Self>, Failure> {
        let cutter = Cutter::start()?;
        cutter.point_at(server.start()?);
        Ok(Arc::new(Self { server: Mutex::new(server), _behind: behind, cutter }))
    }

    /// The address that clients use.
    pub(super) fn address(&self) -> SocketAddr {
        self.cutter.address()
    }

    /// Listens for wishes until the process ends; after the stage is gone there is nobody to grant them.
    pub(super) fn control(self: &Arc<Self>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let stage = Arc::downgrade(self);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let Some(stage) = stage.upgrade() else { return };
                // A client that went away has lost its interest.
                let _ = stage.serve(connection);
            }
        });
        Ok(address)
    }

    fn serve(&self, mut connection: TcpStream) -> io::Result<()> {
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        let Some(request) = Request::read(&mut connection, &mut Vec::new())? else { return Ok(()) };
        let (status, answer) = match self.grant(&request) {
            Ok(answer) => ("200 OK", answer),
            Err(detail) => ("400 Bad Request", json!({"ok": false, "detail": detail})),
        };
        let body = answer.to_string();
        let head = "Content-Type: application/json\r\nConnection: close";
        write!(connection, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn grant(&self, request: &Request) -> Result<Value, String> {
        let (path, query) = request.target().split_once('?').unwrap_or_else(|| (request.target(), ""));
        match (request.verb(), path) {
            ("POST", "/cut") => {
                let cuts = query.strip_prefix("after=").unwrap_or_default().split(',').map(str::parse);
                let cuts = cuts.collect::<Result<Vec<usize>, _>>().map_err(|error| error.to_string())?;
                self.cutter.journal().arm(cuts);
                Ok(json!({"ok": true}))
            }
            ("GET", "/cut") => {
                let verdict = self.cutter.journal().verdict();
                let ok = verdict.is_ok();
                let (Ok(detail) | Err(detail)) = verdict;
                Ok(json!({"ok": ok, "detail": detail}))
            }
            ("GET", "/call") => Ok(self.cutter.journal().last_call()),
            ("POST", "/restart") => {
                let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
                server.kill();
                let address = server.start().map_err(|failure| format!("{failure:?}"))?;
                self.cutter.point_at(address);
                Ok(json!({"ok": true}))
            }
            (verb, path) => Err(format!("there is no {verb} {path}")),
        }
    }
}
