//! Records of persistent handles with any content, with and without a valid checksum: a server that
//! starts reads them, whoever wrote them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| ropeway_smb_server::fuzzing::handle_record(data));
