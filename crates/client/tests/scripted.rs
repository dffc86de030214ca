//! The client against servers that do whatever a script says, byte for byte.

mod support;

mod scripted {
    mod asks;
    mod calls;
    mod eras;
    mod forgotten;
    mod framing;
    mod inputs;
    mod misrouted;
    mod resume;
    mod sessions;
    mod standalone;
    mod stateless;
    #[cfg(target_os = "linux")]
    mod vanishing;
}
