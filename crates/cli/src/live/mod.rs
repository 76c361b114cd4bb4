//! What this process tells of itself: its parts for [`ropeway_live`].
//!
//! ```text
//! job      a copy, mirror, comparison or image: from the events that bar, JSON and log get too
//! server   an SMB server: from its report
//! others   mounts, caches, write-back journals, runs of the laboratory and the demo
//! ```

mod job;
mod others;
mod server;

use ropeway_live::Live;

pub(crate) use job::{JobPart, Watched};
pub(crate) use others::{BacklogsPart, CachePart, MountPart, RunPart};
pub(crate) use server::ServerPart;

/// What this process tells of itself, until this is dropped. Its parts end before it.
pub(crate) struct Told {
    #[cfg(feature = "otel")]
    _export: Option<ropeway_otel::Export>,
    live: Live,
}

impl std::ops::Deref for Told {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

/// Registers this process under the name of its command. Never fails.
pub(crate) fn start(command: &'static str) -> Told {
    let live = Live::start(command, std::env::args_os());
    Told {
        #[cfg(feature = "otel")]
        _export: export(&live),
        live,
    }
}

/// Starts the export to a collector of OpenTelemetry, if the standard variables ask for it.
#[cfg(feature = "otel")]
fn export(live: &Live) -> Option<ropeway_otel::Export> {
    let variable = |name: &str| std::env::var(name).ok();
    match ropeway_otel::Settings::read(variable) {
        Ok(settings) => settings.map(|settings| ropeway_otel::Export::start(live, settings)),
        Err(error) => {
            crate::ui::messages::print_stderr(&format!("! nothing is exported to OpenTelemetry: {error}"));
            None
        }
    }
}
