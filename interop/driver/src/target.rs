//! What the steps are played against: a server, alone or behind the gateway.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::outcome::{Fault, Word};
use crate::process::{Process, free_address};
use crate::session::Session;

#[derive(Debug)]
pub(crate) struct Target {
    /// `None` if the gateway starts it.
    server: Option<Process>,
    gateway: Option<Process>,
    /// Of whichever the client talks to.
    address: SocketAddr,
}

impl Target {
    pub(crate) fn new(
        command: &[String],
        gateway: Option<&Path>,
        stdio: bool,
        folder: &Path,
    ) -> Result<Self, String> {
        let start = |address| Process::new(command.to_vec(), address, &folder.join("server.log"));
        let Some(program) = gateway else {
            let address = free_address()?;
            return Ok(Self { server: Some(start(address)), gateway: None, address });
        };
        let (server, upstream) = if stdio {
            // Quoted: a path may hold spaces.
            let quoted: Vec<String> = command.iter().map(|word| format!("'{word}'")).collect();
            (None, ["--stdio".to_owned(), format!("{} stdio", quoted.join(" "))])
        } else {
            let address = free_address()?;
            (Some(start(address)), ["--upstream".to_owned(), format!("http://{address}/mcp")])
        };
        let address = free_address()?;
        let store = format!("sqlite:{}", folder.join("sessions.db").display());
        let listen = ["--listen".to_owned(), address.to_string(), "--store".to_owned(), store];
        let serve = [program.display().to_string(), "serve".to_owned()];
        let gateway = serve.into_iter().chain(upstream).chain(listen).collect();
        let gateway = Process::new(gateway, address, &folder.join("gateway.log"));
        Ok(Self { server, gateway: Some(gateway), address })
    }

    /// Starts whatever does not run.
    pub(crate) async fn ready(&mut self) -> Result<(), Fault> {
        for process in self.server.iter_mut().chain(&mut self.gateway) {
            process.ready().await?;
        }
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        for process in self.server.iter_mut().chain(&mut self.gateway) {
            process.kill();
        }
    }

    pub(crate) fn gateway(&mut self) -> Option<&mut Process> {
        self.gateway.as_mut()
    }

    /// Whether what the server remembers ends with the gateway.
    pub(crate) fn is_child_of_gateway(&self) -> bool {
        self.server.is_none()
    }

    /// Kills the server, and only that.
    pub(crate) fn kill_server(&mut self) -> Result<(), Fault> {
        if let Some(server) = &mut self.server {
            server.kill();
            return Ok(());
        }
        let children = self.gateway.as_mut().and_then(Process::id).map(children_of).unwrap_or_default();
        if children.is_empty() {
            return Err(Fault::new(Word::Broken, "the gateway has no child that could be killed"));
        }
        for child in children {
            // One that ended by itself is as dead.
            let _ = Command::new("kill").args(["-9", &child.to_string()]).status();
        }
        Ok(())
    }

    /// Starts the server again, which ends by itself. One that the gateway has started is the gateway's to start again.
    pub(crate) async fn supervise(&mut self) -> Result<(), Fault> {
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

/// As Linux tells it.
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may hold anything, even parentheses.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
