//! The client against the library of this very product, over real sockets that a test can cut.

mod support;

mod library {
    mod against;
    mod cutter;
    mod handler;
    mod host;
}
