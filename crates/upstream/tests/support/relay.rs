//! A relay in front of a server, which can go away and come back on the same port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_client::Uri;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::within;

pub(crate) struct Relay {
    target: Mutex<SocketAddr>,
    address: SocketAddr,
    /// The accept loop, which has the connections.
    process: Mutex<Option<(JoinHandle<()>, CancellationToken)>>,
    /// Each connection has a clone.
    connections: Arc<()>,
}

impl Relay {
    pub(crate) async fn before(target: &Uri) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), target).await
    }

    /// Starts a relay that listens at `address`.
    pub(crate) async fn at(address: SocketAddr, target: &Uri) -> Self {
        let target = Mutex::new(address_of(target));
        let relay = Self { target, address, process: Mutex::default(), connections: Arc::default() };
        let listener = TcpListener::bind(relay.address).await.expect("a port");
        let relay = Self { address: listener.local_addr().expect("an address"), ..relay };
        relay.serve(listener);
        relay
    }

    pub(crate) fn url(&self) -> Uri {
        format!("http://{}/mcp", self.address).parse().expect("an address")
    }

    /// Refuses connections from now on, and cuts those that there are.
    pub(crate) async fn kill(&self) {
        let process = self.process.lock().expect("the relay").take();
        if let Some((process, _)) = process {
            process.abort();
            let _ = within("the end of a relay", process).await;
        }
        // The runtime drops aborted tasks, and with them their sockets, one after another.
        let dropped = async {
            while Arc::strong_count(&self.connections) > 1 {
                tokio::task::yield_now().await;
            }
        };
        within("the end of its connections", dropped).await;
        // A timer has the runtime ask the kernel for news: clients learn that they were cut.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Refuses connections from now on, and keeps those that there are.
    pub(crate) async fn shut(&self) {
        if let Some((_, shut)) = &*self.process.lock().expect("the relay") {
            shut.cancel();
        }
        let refused = async { while TcpStream::connect(self.address).await.is_ok() {} };
        within("the end of a listener", refused).await;
    }

    pub(crate) fn revive(&self) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option of TCP");
        socket.bind(self.address).expect("the same port");
        self.serve(socket.listen(128).expect("a listener"));
    }

    /// Another server is behind it from now on, as after a restart.
    pub(crate) async fn retarget(&self, target: &Uri) {
        self.kill().await;
        *self.target.lock().expect("the relay") = address_of(target);
        self.revive();
    }

    fn serve(&self, listener: TcpListener) {
        let (target, token) = (*self.target.lock().expect("the relay"), CancellationToken::new());
        let (shut, counted) = (token.clone(), Arc::clone(&self.connections));
        let process = tokio::spawn(async move {
            // Aborted with this task.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    () = shut.cancelled() => break,
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { return };
                        connections.spawn(pass(client, target, Arc::clone(&counted)));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
            drop(listener);
            while connections.join_next().await.is_some() {}
        });
        *self.process.lock().expect("the relay") = Some((process, token));
    }
}

fn address_of(target: &Uri) -> SocketAddr {
    target.authority().expect("an address").as_str().parse().expect("numbers")
}

async fn pass(mut client: TcpStream, target: SocketAddr, _counted: Arc<()>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    // However it ends, both connections end.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
