//! The client against rmcp's own server, which speaks revisions with and without sessions on one address.

mod support;

mod rmcp_server {
    mod against;
    mod server;
}
