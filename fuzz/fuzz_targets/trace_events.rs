//! Bytes of the kernel's tracing, any content: pages of its ring buffer, layouts of events, BTF, events of
//! fanotify. Reading ends, and what the events mean is decoded in bounded memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_observe::btf::Btf;
use ropeway_observe::catalogue::Catalogue;
use ropeway_observe::decode::{Decoder, System};
use ropeway_observe::fanotify::events::Events;
use ropeway_observe::tracefs::events::{Meanings, Pairing, Threads};
use ropeway_observe::tracefs::format::Format;
use ropeway_observe::tracefs::page::{Page, PageLayout};

/// A machine without processes.
struct Nobody;

impl System for Nobody {
    fn descriptor(&self, _process: u32, _descriptor: i32) -> Option<Vec<u8>> {
        None
    }
    fn position(&self, _process: u32, _descriptor: i32) -> Option<(u64, u32)> {
        None
    }
    fn folder(&self, _process: u32) -> Option<Vec<u8>> {
        None
    }
    fn program(&self, _process: u32) -> Option<Vec<u8>> {
        None
    }
}

impl Threads for Nobody {
    fn process_of(&mut self, _thread: u32) -> Option<u32> {
        None
    }
}

const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

/// Layouts of the events of two calls and of threads, with small numbers.
fn formats() -> Vec<(String, String)> {
    let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
    let call = "\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] __filename_val;\toffset:40;\tsize:4;\tsigned:0;\n";
    let end = "\tfield:long ret;\toffset:8;\tsize:8;\tsigned:1;\n";
    let fork = "\tfield:pid_t child_pid;\toffset:8;\tsize:4;\tsigned:1;\n";
    let execute = "\tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t old_pid;\toffset:12;\tsize:4;\tsigned:1;\n";
    let events = [
        ("sys_enter_openat", call),
        ("sys_enter_read", call),
        ("sys_exit_openat", end),
        ("sched_process_fork", fork),
        ("sched_process_exec", execute),
        ("sched_process_exit", ""),
    ];
    let numbered = events.into_iter().zip(1..);
    let text = |((name, fields), id): ((&str, &str), u16)| {
        (
            name.to_owned(),
            format!("name: x\nID: {id}\nformat:\n{common}{fields}"),
        )
    };
    numbered.map(text).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    match mode % 4 {
        0 => {
            let text = String::from_utf8_lossy(data);
            if let Some(format) = Format::parse(&text) {
                for field in &format.fields {
                    let _ = (field.number(data), field.text(data));
                }
            }
        }
        1 => {
            if let Ok(btf) = Btf::parse(data) {
                let _ = btf.offset("task_struct", "pid");
            }
        }
        2 => assert!(Events::new(data).count() <= data.len()),
        _ => pages(data),
    }
});

/// Reads a page, pairs its events and decodes the calls.
fn pages(data: &[u8]) {
    let layout = PageLayout::parse(PAGE).expect("it is the kernel's");
    let formats = formats();
    let texts = formats.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let catalogue = Catalogue::of_this_machine();
    let meanings = Meanings::new(texts, &catalogue).expect("they have the common fields");
    let mut pairing = Pairing::new(meanings);
    let mut decoder = Decoder::new(catalogue, Nobody, 0);
    // Half of the inputs get past the field of committed bytes.
    let mut whole = data.to_vec();
    if data.first().is_some_and(|byte| byte % 2 == 0) && data.len() >= 16 {
        let length = (data.len() - 16) as u64;
        whole[8..16].copy_from_slice(&length.to_ne_bytes());
    }
    let Some(page) = Page::parse(&whole, &layout) else {
        return;
    };
    let mut count = 0;
    for entry in page {
        count += 1;
        pairing.take(entry.time, entry.payload, &mut Nobody, &mut |event| {
            decoder.take(event, &mut |record| assert!(!record.kind.is_empty()));
        });
        assert!(pairing.in_progress() <= count);
    }
    assert!(count <= whole.len());
}
