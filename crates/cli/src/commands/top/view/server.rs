//! The details of a server: shares, sessions, open files, requests by kind.

use ratatui::style::Color;
use ratatui::text::Line;
use ropeway_live::model::{self, OpenFile, Operations, Server, Session};

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
    let mut pieces = vec![
        Piece::Lines(lines),
        Piece::Graphs(vec![
            throughput("read and written", &history.moved(), Color::Cyan),
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

fn latency(server: &Server) -> String {
    let shown = |share| server.latency.quantile(share).map(|seconds| seconds * 1000.0);
    match (shown(0.5), shown(0.99)) {
        (Some(half), Some(most)) => format!("half below {half:.3} ms, 99% below {most:.3} ms"),
        _ => "no request yet".to_owned(),
    }
}

fn shares(server: &Server) -> String {
    let shares = server.shares.iter().map(|share| {
        let marks = share.marks();
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
    vec![
        session.user_shown(),
        session.client_shown(),
        session.dialect.clone(),
        format::bytes(session.bytes_read),
        format::bytes(session.bytes_written),
        format::count(session.open),
        session.idle_shown(),
        format::count(session.locks),
        session.protection(),
        format::count(session.requests()),
        session.shares.join(", "),
    ]
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
        vec![
            session.map_or("?", |session| session.user.as_str()).to_owned(),
            access.to_owned(),
            format::count(open.locks),
            (if open.durable { "durable" } else { "" }).to_owned(),
            open.share.clone(),
            open.path_shown(),
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
    let shown = model::by_frequency(operations)
        .into_iter()
        .map(|(kind, operation)| {
            let count = format::count(operation.count);
            match operation.mean_ms() {
                Some(mean) => format!("{kind} {count} ({mean:.2} ms)"),
                None => format!("{kind} {count}"),
            }
        });
    let line = shown.collect::<Vec<_>>().join(" · ");
    (!line.is_empty()).then(|| Piece::Lines(vec![Line::raw(text::head(&line, width))]))
}
