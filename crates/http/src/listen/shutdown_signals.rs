//! Shutdown signals: SIGINT and SIGTERM. The first signal starts a graceful shutdown, the second
//! ends the process immediately.

/// The exit code of a process that was interrupted.
const EXIT_CODE_INTERRUPTED: i32 = 130;

/// Receives SIGINT and SIGTERM. Both handlers stay installed, so that no signal is missed between
/// the first and the second.
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
        // If no handler can be installed, the default action applies: the signal ends the process.
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

    /// Ends the process when the next signal arrives.
    pub fn exit_on_next(mut self) {
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("exiting immediately; running calls get an error when the store is opened next");
            std::process::exit(EXIT_CODE_INTERRUPTED);
        });
    }
}
