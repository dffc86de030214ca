//! The accept loop of all in-process servers, so that a ratio does not measure accept loops.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::Error;

/// Serves HTTP/1.1 connections with clones of `service` until the process ends.
pub(super) async fn serve<S, B>(listener: TcpListener, service: S)
where
    S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Error>,
    S::Future: Send,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Error>,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Accepting fails when descriptors run out. They are freed as connections end.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Without it the benchmark would measure Nagle and delayed acks. A socket that refuses it
        // is broken.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            // The load generator counts broken connections.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
