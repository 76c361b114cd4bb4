//! Limits for clients that have not logged in: delays after failed logins, and a bounded number of
//! connections without a session.

pub(crate) mod throttle;
pub(crate) mod unauthenticated;
