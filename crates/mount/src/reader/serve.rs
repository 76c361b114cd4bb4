//! The reading process: answers questions until its input ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use ropeway_vfs::RelPath;
use rustix::fs::{Advice, FileType, Mode, OFlags, ResolveFlags, fadvise, fstat, openat2};
use rustix::io::Errno;

use super::protocol::{Answer, HEAD_BYTES, Question, What};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Answers questions about the mount of a device on a path.
///
/// # Errors
/// The answers cannot be written.
pub(super) fn serve(
    mountpoint: &Path,
    device: &str,
    questions: &mut impl Read,
    answers: &mut impl Write,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut head = [0; HEAD_BYTES];
    while questions.read_exact(&mut head).is_ok() {
        let mut path = vec![0; Question::path_bytes(&head)];
        questions.read_exact(&mut path)?;
        let answered = Question::decode(&head, &path)
            .ok_or_else(|| Errno::INVAL.into())
            .and_then(|question| answer(mountpoint, device, &question, &mut buffer));
        let answer = answered.unwrap_or_else(|error| Answer::failed(&error));
        answers.write_all(&answer.encode())?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(mountpoint: &Path, device: &str, question: &Question, buffer: &mut Vec<u8>) -> io::Result<Answer> {
    let (file, size) = open(mountpoint, device, &question.path)?;
    match question.what {
        What::Kept => kept(&file, size, question),
        What::Read => {
            read(&file, question.offset, question.length, buffer)?;
            Ok(Answer::default())
        }
    }
}

/// Opens a file of the mount; returns its size too. Nothing outside the mount is opened, whatever the
/// source says its nodes are, and nothing but files.
fn open(mountpoint: &Path, device: &str, path: &RelPath) -> io::Result<(File, u64)> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mountpoint, folder, Mode::empty())?;
    let on = fstat(&root)?.st_dev;
    if format!("{}:{}", rustix::fs::major(on), rustix::fs::minor(on)) != device {
        return Err(Errno::NODEV.into());
    }
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let at = |flags: OFlags| {
        openat2(
            &root,
            path.as_bytes(),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            inside,
        )
    };
    // Opening a device may have effects: its kind is looked at first.
    let stat = fstat(at(OFlags::PATH)?)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(at(flags)?);
    let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
    Ok((file, size))
}

fn kept(file: &File, size: u64, question: &Question) -> io::Result<Answer> {
    let page = rustix::param::page_size() as u64;
    let mut kept = 0;
    for number in 0..question.length.div_ceil(question.step) {
        let start = question.offset + number * question.step;
        let end = (start + question.step).min(question.offset + question.length);
        let wanted = end.min(size).saturating_sub(start).next_multiple_of(page);
        if wanted == 0 {
            kept |= 1 << number;
            continue;
        }
        match ropeway_local::kept_in_memory(file.as_fd(), start, wanted)? {
            Some(there) => kept |= u64::from(there >= wanted) << number,
            None => return Ok(Answer::default()),
        }
    }
    Ok(Answer {
        errno: 0,
        is_known: true,
        kept,
    })
}

/// Reads a range, which the kernel then has in memory. It must not read ahead: what lies behind may be
/// far away. So without the advice nothing is read.
fn read(file: &File, offset: u64, length: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    fadvise(file, 0, None, Advice::Random)?;
    buffer.resize(READ_BYTES, 0);
    let mut at = 0;
    while at < length {
        let part = usize::try_from(length - at).unwrap_or(READ_BYTES).min(READ_BYTES);
        match file.read_at(&mut buffer[..part], offset + at) {
            Ok(0) => break,
            Ok(count) => at += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::protocol::ANSWER_BYTES;
    use super::*;

    /// Asks about a folder that is no mount: the device is its own one.
    fn ask(folder: &Path, device: &str, what: What, path: &str) -> Answer {
        let question = Question {
            what,
            offset: 0,
            length: 10 * 4096,
            step: 4096,
            path: RelPath::parse(path.as_bytes()).unwrap(),
        };
        let mut answers = Vec::new();
        let sent = question.encode().unwrap();
        serve(folder, device, &mut &sent[..], &mut answers).unwrap();
        let bytes: [u8; ANSWER_BYTES] = answers.try_into().unwrap();
        Answer::decode(&bytes)
    }

    fn device(folder: &Path) -> String {
        let dev = rustix::fs::stat(folder).unwrap().st_dev;
        format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev))
    }

    #[test]
    fn what_is_read_is_in_memory_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let (path, device) = (folder.path(), device(folder.path()));
        std::fs::write(path.join("file"), vec![5; 6 * 4096 + 100]).unwrap();
        File::open(path.join("file")).unwrap().sync_all().unwrap();
        assert_eq!(ask(path, &device, What::Read, "file").errno, 0);
        let kept = ask(path, &device, What::Kept, "file");
        assert_eq!((kept.errno, kept.is_known, kept.kept), (0, true, 0x3FF));
    }

    #[test]
    fn nothing_outside_and_nothing_but_files_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, device) = (folder.path(), device(folder.path()));
        std::fs::write(path.join("file"), b"x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", path.join("folder")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(path.join("fifo"))
            .status();
        assert!(fifo.unwrap().success());
        let errno = |name: &str| ask(path, &device, What::Read, name).errno;
        assert_eq!(errno("file"), 0);
        assert_eq!(errno("missing"), Errno::NOENT.raw_os_error());
        assert_eq!(errno("fifo"), Errno::INVAL.raw_os_error());
        assert_ne!(errno("link"), 0);
        assert_eq!(errno("folder/passwd"), Errno::LOOP.raw_os_error());
        assert_eq!(
            ask(path, "0:0", What::Read, "file").errno,
            Errno::NODEV.raw_os_error()
        );
    }
}
