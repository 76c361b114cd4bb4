//! Ends of odd kinds, comparison, configuration.

/// Files that change while they are read, and files that the kernel makes up.
mod changing;
/// Contents that are compared.
mod contents;
/// Images written onto block devices.
mod devices;
/// Times that one end keeps more coarsely.
mod grain;
/// What the environment and files say.
mod settings;
/// Targets that are no ordinary files.
mod targets;
