//! When to stop: SIGINT or SIGTERM. Once in good order, twice at once.

/// What a process ends with that was interrupted.
const INTERRUPTED: i32 = 130;

/// Listens from the start, so that no signal is missed between the first and the second.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    #[cfg(unix)]
    pub fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        // Without a handler the default action stands: the process ends.
        Self {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    #[cfg(not(unix))]
    pub fn listen() -> Self {
        Self {}
    }

    #[cfg(unix)]
    pub async fn next(&mut self) {
        async fn one(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = one(&mut self.interrupt) => {}
            () = one(&mut self.terminate) => {}
        }
    }

    #[cfg(not(unix))]
    pub async fn next(&mut self) {
        drop(tokio::signal::ctrl_c().await);
    }

    /// Whoever asks again does not want to wait.
    pub fn exit_when_asked_again(mut self) {
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!(
                "stopped at once; running calls get their error from whoever opens the store next"
            );
            std::process::exit(INTERRUPTED);
        });
    }
}
