//! Programs that behave, and programs that do not, each a real process.
#![cfg(unix)]

mod stdio {
    mod support;

    mod calls;
    mod ends;
    mod healing;
    mod outliving;
    mod shared;
    mod stateless;
}
