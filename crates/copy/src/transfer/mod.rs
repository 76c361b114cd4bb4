//! Moves the data of nodes.
//!
//! [`node`] copies one node and links its other names ([`links`]). [`file`](mod@file) copies a
//! file: it opens the [`source`], finds where to [`start`], moves the data ([`stream`], or
//! [`unsized_file`] where the size is not known) and completes it. [`batch`] and [`small_files`]
//! copy small files in fewer calls. [`special`] makes links, FIFOs and devices. [`delta`] sends
//! only what changed inside a file to an own server, [`blocks`] writes only that in place.
//! [`changing`] deals with files that change while they are read, [`compare`] with `--checksum`.

pub(crate) mod batch;
pub(crate) mod blocks;
pub(crate) mod changing;
pub(crate) mod compare;
pub(crate) mod delta;
pub(crate) mod digest;
pub(crate) mod file;
pub(crate) mod link_table;
pub(crate) mod links;
pub(crate) mod moved;
pub(crate) mod node;
pub(crate) mod pipeline;
pub(crate) mod small;
pub(crate) mod small_files;
pub(crate) mod source;
pub(crate) mod special;
pub(crate) mod start;
pub(crate) mod stream;
pub(crate) mod unsized_file;
pub(crate) mod windows;
