//! The server that the steps run against, alone or behind the gateway.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::client::Session;
use super::outcome::{Fault, FaultKind};
use super::process::{Process, free_address};

#[derive(Debug)]
pub(crate) struct Target {
    /// `None` if the server is a child process of the gateway.
    server: Option<Process>,
    gateway: Option<Process>,
    /// The address that the client uses: the one of the gateway, or of the server without gateway.
    address: SocketAddr,
}

impl Target {
    /// A server without gateway.
    pub(crate) fn direct(command: &[String], folder: &Path) -> Result<Self, String> {
        let address = free_address()?;
        Ok(Self { server: Some(server(command, address, folder)), gateway: None, address })
    }

    /// A server that the gateway reaches over HTTP.
    pub(crate) fn behind_gateway(command: &[String], gateway: &Path, folder: &Path) -> Result<Self, String> {
        let address = free_address()?;
        let upstream = ["--upstream".to_owned(), format!("http://{address}/mcp")];
        Self::with_gateway(Some(server(command, address, folder)), upstream, gateway, folder)
    }

    /// A server that the gateway starts and reaches on its standard input.
    pub(crate) fn child_of_gateway(
        command: &[String],
        gateway: &Path,
        folder: &Path,
    ) -> Result<Self, String> {
        // Quoted, because a path may contain spaces.
        let quoted: Vec<String> = command.iter().map(|word| format!("'{word}'")).collect();
        let upstream = ["--stdio".to_owned(), format!("{} stdio", quoted.join(" "))];
        Self::with_gateway(None, upstream, gateway, folder)
    }

    fn with_gateway(
        server: Option<Process>,
        upstream: [String; 2],
        program: &Path,
        folder: &Path,
    ) -> Result<Self, String> {
        let address = free_address()?;
        let store = format!("sqlite:{}", folder.join("sessions.db").display());
        let listen = ["--listen".to_owned(), address.to_string(), "--store".to_owned(), store];
        let serve = [program.display().to_string(), "serve".to_owned()];
        let gateway = serve.into_iter().chain(upstream).chain(listen).collect();
        let gateway = Process::new(gateway, address, &folder.join("gateway.log"));
        Ok(Self { server, gateway: Some(gateway), address })
    }

    /// Starts the processes that do not run.
    pub(crate) async fn ready(&mut self) -> Result<(), Fault> {
        for process in self.server.iter_mut().chain(&mut self.gateway) {
            process.ready().await?;
        }
        Ok(())
    }

    /// Returns the address that clients use.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stop(&mut self) {
        for process in self.server.iter_mut().chain(&mut self.gateway) {
            process.kill();
        }
    }

    pub(crate) fn gateway(&mut self) -> Option<&mut Process> {
        self.gateway.as_mut()
    }

    /// Returns true if the server loses its memory when the gateway ends.
    pub(crate) fn is_child_of_gateway(&self) -> bool {
        self.server.is_none()
    }

    /// Kills the server and leaves the gateway running.
    pub(crate) fn kill_server(&mut self) -> Result<(), Fault> {
        if let Some(server) = &mut self.server {
            server.kill();
            return Ok(());
        }
        let children = self.gateway.as_mut().and_then(Process::id).map(children_of).unwrap_or_default();
        if children.is_empty() {
            return Err(Fault::new(FaultKind::Broken, "the gateway has no child process to kill"));
        }
        for child in children {
            // Fails if the process has already ended.
            let _ = Command::new("kill").args(["-9", &child.to_string()]).status();
        }
        Ok(())
    }

    /// Waits until the server has ended by itself, and starts it again. If the server is a child
    /// process of the gateway, the gateway does that.
    pub(crate) async fn restart_after_exit(&mut self) -> Result<(), Fault> {
        match &mut self.server {
            None => Ok(()),
            Some(server) => {
                server.ended().await?;
                server.ready().await
            }
        }
    }

    pub(crate) async fn session(&self) -> Result<Session, Fault> {
        Session::open(self.address).await
    }
}

fn server(command: &[String], address: SocketAddr, folder: &Path) -> Process {
    Process::new(command.to_vec(), address, &folder.join("server.log"))
}

/// Returns the child processes of a process, as `/proc` of Linux lists them.
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name before it may contain any character, also parentheses.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
