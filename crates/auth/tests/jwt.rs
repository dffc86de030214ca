//! Tokens, good and hostile, and the keys that tell them apart, from publishers good and hostile.

mod support;

mod jwt {
    mod keys;
    mod secure;
    mod tokens;
    mod vectors;
}
