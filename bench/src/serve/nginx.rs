//! nginx with a constant response, as the upper limit: it only parses HTTP.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::Error;

/// Writes a configuration into the current directory and replaces this process by nginx (`exec`),
/// so that the process that the benchmark started is the one that serves and that a kill ends.
/// nginx runs as one process, without a master.
pub(super) fn exec() -> Result<(), Error> {
    let address = super::proxy::free_address()?;
    let directory = std::env::current_dir()?;
    std::fs::write(directory.join("nginx.conf"), configuration(address.port()))?;
    super::announce(address)?;
    let failure = Command::new("nginx").arg("-p").arg(&directory).args(["-c", "nginx.conf"]).exec();
    Err(format!("nginx did not start: {failure}").into())
}

fn configuration(port: u16) -> String {
    format!(
        r#"daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        default_type application/json;
        location / {{
            return 200 '{{"jsonrpc":"2.0","id":0,"result":{{"content":[{{"type":"text","text":"x"}}]}}}}';
        }}
    }}
}}
"#
    )
}

/// Returns true if nginx is installed.
pub(crate) fn is_installed() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join("nginx").is_file()))
}
