//! The details of a server: shares, sessions, open files, requests by kind.

use ratatui::style::Color;
use ratatui::text::Line;
use ropeway_live::model::{OpenFile, Operations, Server, Session};

use super::job::{messages, operations, throughput};
use super::piece::{Piece, Table};
use crate::tui::Theme;
use crate::tui::text;
use crate::ui::format;

/// Returns the pieces for a server; `chosen` is the index of a session.
pub(super) fn pieces(server: &Server, chosen: usize, width: usize, theme: Theme) -> Vec<Piece<'static>> {
    let mut lines = vec![
        format!(
            "{} on {} · shares: {}",
            server.name,
            server.addresses.join(", "),
            shares(server)
        ),
        format!(
            "{} · {} · {} · {} open · {} failed logins",
            format::counted(server.connections, "connection", "connections"),
            format::counted(server.users, "user", "users"),
            format::counted(server.sessions_total, "session", "sessions"),
            format::count(server.open_total),
            format::count(server.logins_failed),
        ),
        format!(
            "read by clients {} · written {}",
            format::bytes(server.bytes_read),
            format::bytes(server.bytes_written),
        ),
        format!(
            "{} requests · {}",
            format::count(server.requests),
            latency(server)
        ),
    ];
    lines.extend((server.unsent_bytes > 0).then(|| {
        format!(
            "{} of replies not received by clients yet",
            format::bytes(server.unsent_bytes)
        )
    }));
    let lines = lines
        .iter()
        .map(|line| Line::raw(text::head(line, width)))
        .collect();
    let history = &server.history;
    let moved: Vec<u64> = sum(&history.read, &history.written);
    let mut pieces = vec![
        Piece::Lines(lines),
        Piece::Graphs(vec![
            throughput("read and written", &moved, Color::Cyan),
            operations(&history.operations),
        ]),
        Piece::Table(sessions(server, chosen)),
    ];
    if server.open_total > 0 {
        pieces.push(Piece::Table(open_files(server)));
    }
    pieces.extend(kinds(&server.operations, width));
    pieces.extend(messages(&server.messages, width, theme));
    pieces
}

/// Adds two series that end at the same moment.
fn sum(one: &[u64], other: &[u64]) -> Vec<u64> {
    let count = one.len().max(other.len());
    let at = |series: &[u64], index: usize| {
        let missing = count - series.len();
        index
            .checked_sub(missing)
            .and_then(|index| series.get(index))
            .copied()
            .unwrap_or(0)
    };
    (0..count)
        .map(|index| at(one, index).saturating_add(at(other, index)))
        .collect()
}

fn latency(server: &Server) -> String {
    let shown = |share| server.latency.quantile(share).map(|seconds| seconds * 1000.0);
    match (shown(0.5), shown(0.99)) {
        (Some(half), Some(most)) => format!("half below {half:.3} ms, 99% below {most:.3} ms"),
        _ => "no request yet".to_owned(),
    }
}

fn shares(server: &Server) -> String {
    let shares = server.shares.iter().map(|share| {
        let marks = [
            (share.read_only, "read-only"),
            (share.encrypt, "encrypted"),
            (share.far, "far"),
        ];
        let marks: Vec<&str> = marks
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, mark)| mark)
            .collect();
        match marks.is_empty() {
            true => share.name.clone(),
            false => format!("{} ({})", share.name, marks.join(", ")),
        }
    });
    shares.collect::<Vec<_>>().join(", ")
}

fn sessions(server: &Server, chosen: usize) -> Table {
    let shown = server.sessions.len() as u64;
    let more = match server.sessions_total > shown {
        true => format!(
            " (the busiest {shown} of {})",
            format::count(server.sessions_total)
        ),
        false => String::new(),
    };
    Table {
        title: format!("sessions{more}"),
        columns: vec![
            ("USER", 10),
            ("CLIENT", 21),
            ("DIALECT", 7),
            ("READ", -10),
            ("WRITTEN", -10),
            ("OPEN", -5),
            ("IDLE", -7),
            ("LOCKS", -5),
            ("PROTECTION", 24),
            ("REQUESTS", -10),
            ("SHARES", 0),
        ],
        rows: server.sessions.iter().map(session).collect(),
        chosen: (!server.sessions.is_empty()).then_some(chosen),
    }
}

fn session(session: &Session) -> Vec<String> {
    let user = match (session.user.is_empty(), session.guest) {
        (true, _) => "anonymous".to_owned(),
        (false, true) => format!("{} (guest)", session.user),
        (false, false) => session.user.clone(),
    };
    let client = session.clients.first().map_or("?", String::as_str);
    let client = match session.clients.len() {
        0 | 1 => client.to_owned(),
        count => format!("{client} +{}", count - 1),
    };
    let protection = match (session.encrypted, session.signing_required) {
        (true, _) => format!("sealed {}", session.cipher),
        (false, true) => format!("signed {}", session.signing),
        (false, false) => "none required".to_owned(),
    };
    vec![
        user,
        client,
        session.dialect.clone(),
        format::bytes(session.bytes_read),
        format::bytes(session.bytes_written),
        format::count(session.open),
        idle(session.idle_seconds),
        format::count(session.locks),
        protection,
        format::count(session.requests()),
        session.shares.join(", "),
    ]
}

fn idle(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        _ => text::seconds(seconds as f64),
    }
}

fn open_files(server: &Server) -> Table {
    let shown = server.open_files.len() as u64;
    let more = match server.open_total > shown {
        true => format!(
            " ({shown} of {}, without pipes)",
            format::count(server.open_total)
        ),
        false => String::new(),
    };
    let row = |open: &OpenFile| {
        let session = server.sessions.iter().find(|session| session.id == open.session);
        let access = match (open.reads, open.writes) {
            (true, true) => "rw",
            (true, false) => "r",
            (false, true) => "w",
            (false, false) => "-",
        };
        let slash = if open.folder { "/" } else { "" };
        vec![
            session.map_or("?", |session| session.user.as_str()).to_owned(),
            access.to_owned(),
            format::count(open.locks),
            (if open.durable { "durable" } else { "" }).to_owned(),
            open.share.clone(),
            format!("{}{slash}", open.path),
        ]
    };
    Table {
        title: format!("open files and folders{more}"),
        columns: vec![
            ("USER", 10),
            ("FOR", 3),
            ("LOCKS", -5),
            ("", 7),
            ("SHARE", 10),
            ("PATH", 0),
        ],
        rows: server.open_files.iter().map(row).collect(),
        chosen: None,
    }
}

/// Returns the requests of each kind with their mean time, the most frequent first.
pub(super) fn kinds(operations: &Operations, width: usize) -> Option<Piece<'static>> {
    let mut all: Vec<_> = operations
        .iter()
        .filter(|(_, operation)| operation.count > 0)
        .collect();
    all.sort_by_key(|(_, operation)| std::cmp::Reverse(operation.count));
    let shown = all.into_iter().map(|(kind, operation)| {
        let mean = operation.seconds / operation.count as f64 * 1000.0;
        match mean > 0.0 {
            true => format!("{kind} {} ({mean:.2} ms)", format::count(operation.count)),
            false => format!("{kind} {}", format::count(operation.count)),
        }
    });
    let line = shown.collect::<Vec<_>>().join(" · ");
    (!line.is_empty()).then(|| Piece::Lines(vec![Line::raw(text::head(&line, width))]))
}
