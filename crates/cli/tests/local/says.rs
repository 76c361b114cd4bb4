//! What a run says: while it works, when it ends early, and when two trees differ.
//!
//! ```text
//! bar      the progress bar in terminals, plain lines, a lost connection, the background
//! ends     interrupted and refused runs, a mirror's question
//! reasons  why `check` calls two nodes different
//! schema   docs/output.schema.json against real output
//! ```

mod bar;
mod ends;
mod reasons;
mod schema;
mod validator;
