//! Unusual sources and targets, comparison, configuration.

/// Files that change while they are read, and files that the kernel generates.
mod changing;
/// Comparison of contents.
mod contents;
/// Images written onto block devices.
mod devices;
/// Times that one end stores with coarser granularity.
mod grain;
/// Settings in the environment and in files.
mod settings;
/// Targets that are not regular files.
mod targets;
