//! A server in words: shares, sessions, open files.

use ropeway_live::format;
use ropeway_live::model::{OpenFile, Server, Session, Share};

use super::{
    Action, Graph, Note, Row, Section, Table, Tile, Tone, action, columns, kinds, messages, note, tile,
};

/// Returns the section of a server.
pub(super) fn section(server: &Server) -> Section {
    let history = &server.history;
    let mut tables = vec![sessions(server), shares(server)];
    tables.extend((server.open_total > 0).then(|| open_files(server)));
    tables.extend(kinds(&server.operations));
    Section {
        key: format!("server-{}", server.id),
        kind: "server".to_owned(),
        what: format!("{} on {}", server.name, server.addresses.join(", ")),
        state: note("serving", Tone::Good),
        notes: notes(server),
        tiles: tiles(server),
        graphs: vec![
            Graph::bytes("read and written", &history.moved(), Tone::Sent),
            Graph::count("requests", &history.operations),
        ],
        tables,
        messages: messages(&server.messages),
        ..Section::default()
    }
}

fn notes(server: &Server) -> Vec<Note> {
    let unsent = (server.unsent_bytes > 0).then(|| {
        let bytes = format::bytes(server.unsent_bytes);
        note(
            format!("{bytes} of replies not received by clients yet"),
            Tone::Plain,
        )
    });
    unsent.into_iter().collect()
}

fn tiles(server: &Server) -> Vec<Tile> {
    let below = |share| match server.latency.quantile(share) {
        Some(seconds) => format!("{:.3} ms", seconds * 1000.0),
        None => "–".to_owned(),
    };
    vec![
        tile("users", format::count(server.users)),
        tile("sessions", format::count(server.sessions_total)),
        tile("open files", format::count(server.open_total)),
        tile("connections", format::count(server.connections)),
        tile("read by clients", format::bytes(server.bytes_read)),
        tile("written by clients", format::bytes(server.bytes_written)),
        tile("requests", format::count(server.requests)),
        tile("half of them below", below(0.5)),
        tile("99% of them below", below(0.99)),
        tile("failed logins", format::count(server.logins_failed)),
    ]
}

fn shares(server: &Server) -> Table {
    let row = |share: &Share| {
        let marks = share.marks();
        Row {
            key: share.name.clone(),
            cells: vec![
                share.name.clone(),
                match marks.is_empty() {
                    true => "–".to_owned(),
                    false => marks.join(", "),
                },
                format::count(share.sessions),
            ],
            ..Row::default()
        }
    };
    Table {
        key: "shares".to_owned(),
        title: "Shares".to_owned(),
        columns: columns(&["Share", "Options", "#Sessions"]),
        rows: server.shares.iter().map(row).collect(),
    }
}

fn sessions(server: &Server) -> Table {
    let shown = server.sessions.len() as u64;
    let title = match server.sessions_total {
        0 => "Sessions: none now".to_owned(),
        total if total > shown => format!("Sessions: the busiest {shown} of {}", format::count(total)),
        _ => "Sessions".to_owned(),
    };
    Table {
        key: "sessions".to_owned(),
        title,
        columns: columns(&[
            "User",
            "Client",
            "Shares",
            "#Read",
            "#Written",
            "#Open",
            "#Locks",
            "#Requests",
            "#Idle",
            "Dialect",
            "Protection",
        ]),
        rows: server.sessions.iter().map(session).collect(),
    }
}

fn session(session: &Session) -> Row {
    let (user, client) = (session.user_shown(), session.client_shown());
    let close = Action {
        label: "end session".to_owned(),
        question: format!("End the session of {user} from {client}? The client may log in again."),
        tone: Tone::Bad,
        ..action("close_session", &[("id", &session.id)])
    };
    Row {
        key: session.id.clone(),
        cells: vec![
            user,
            client,
            session.shares.join(", "),
            format::bytes(session.bytes_read),
            format::bytes(session.bytes_written),
            format::count(session.open),
            format::count(session.locks),
            format::count(session.requests()),
            session.idle_shown(),
            session.dialect.clone(),
            session.protection(),
        ],
        actions: vec![close],
    }
}

fn open_files(server: &Server) -> Table {
    let shown = server.open_files.len() as u64;
    let title = match server.open_total > shown {
        true => format!(
            "Open files and folders: {shown} of {}, without pipes",
            format::count(server.open_total)
        ),
        false => "Open files and folders".to_owned(),
    };
    let row = |(index, open): (usize, &OpenFile)| {
        let found = server.sessions.iter().find(|session| session.id == open.session);
        let access = match (open.reads, open.writes) {
            (true, true) => "reading, writing",
            (true, false) => "reading",
            (false, true) => "writing",
            (false, false) => "attributes",
        };
        let durable = if open.durable { ", durable" } else { "" };
        Row {
            // A file may be open several times.
            key: index.to_string(),
            cells: vec![
                open.path_shown(),
                open.share.clone(),
                found.map_or("?".to_owned(), Session::user_shown),
                format!("{access}{durable}"),
                format::count(open.locks),
            ],
            ..Row::default()
        }
    };
    Table {
        key: "open".to_owned(),
        title,
        columns: columns(&["Path", "Share", "User", "For", "#Locks"]),
        rows: server.open_files.iter().enumerate().map(row).collect(),
    }
}
