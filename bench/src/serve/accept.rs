//! The accept loop that every in-process server shares, so that a ratio measures services and not loops.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::Error;

/// Serves HTTP/1.1 connections with clones of `service`, for ever.
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
            // Accepting fails when descriptors run out; they come back as connections end.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Without it Nagle and delayed acks would be measured. A socket that refuses is about to fail anyway.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            // A connection that breaks is the client's to count.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
