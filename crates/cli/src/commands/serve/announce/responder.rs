//! A multicast DNS responder (RFC 6762, RFC 6763) as a state machine without socket and clock.
//!
//! ```text
//! Probing (3 queries, 250 ms apart) ── no conflict ──► Announcing (2 responses, 1 s apart) ──► Answering
//!    ▲                                                                                             │
//!    └──────────── conflict: the name gets another number ◄────────────────────────────────────────┘
//! ```

use std::net::{IpAddr, SocketAddr};

use super::dns::{Data, LABEL_MAX, Message, Name, Question, Record, kind};

/// Interval between probes in milliseconds (RFC 6762, 8.1).
const PROBE_EVERY_MS: u64 = 250;
/// Number of probes.
const PROBES: u32 = 3;
/// Interval between announcements (RFC 6762, 8.3), and minimum interval between equal replies (6),
/// in milliseconds.
const SECOND_MS: u64 = 1000;
/// Number of announcements.
const ANNOUNCEMENTS: u32 = 2;
/// Number of conflicts after which probing slows down (RFC 6762, 8.1).
const CONFLICTS_FAST: u32 = 15;
/// Pause before a probe after that many conflicts, in milliseconds.
const CONFLICTS_PAUSE_MS: u64 = 5000;
/// Lifetime in seconds of records that contain a host name (RFC 6762, 10).
const TTL_HOST_S: u32 = 120;
/// Lifetime in seconds of other records.
const TTL_OTHER_S: u32 = 4500;
/// Maximum lifetime in seconds for clients that know no multicast DNS (RFC 6762, 6.7).
const TTL_LEGACY_S: u32 = 10;
/// Port of multicast DNS. A query from another port comes from a client that knows only DNS.
pub(super) const PORT: u16 = 5353;

/// Type of the service of a server of SMB, and of one that takes backups of Macs.
const SMB: &str = "_smb";
const DISKS: &str = "_adisk";

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// To the multicast group, on each interface with its own addresses.
    Multicast(Message),
    /// To one client.
    Unicast(SocketAddr, Message),
}

/// One server on one interface.
#[derive(Clone, Debug)]
pub(super) struct Responder {
    label: String,
    number: u32,
    port: u16,
    addresses: Vec<IpAddr>,
    /// Names of the shares that take backups of Macs.
    backups: Vec<String>,
    state: State,
    due_ms: u64,
    /// Time of the last multicast of each record.
    sent_ms: Vec<(Record, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Probing(u32),
    Announcing(u32),
    Answering,
}

impl Responder {
    /// Makes a responder for a server with this name and port at these addresses of one interface.
    pub(super) fn new(name: &str, port: u16, addresses: Vec<IpAddr>, now_ms: u64) -> Self {
        Self {
            label: name.split('.').next().unwrap_or(name).to_owned(),
            number: 1,
            port,
            addresses,
            backups: Vec::new(),
            state: State::Probing(0),
            due_ms: now_ms,
            sent_ms: Vec::new(),
        }
    }

    /// Also announces shares for Time Machine.
    pub(super) fn with_backups(mut self, shares: Vec<String>) -> Self {
        self.backups = shares;
        self
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        (self.state != State::Answering).then_some(self.due_ms)
    }

    /// Handles a deadline that has passed.
    pub(super) fn handle_timeout(&mut self, now_ms: u64) -> Option<Output> {
        if now_ms < self.due_ms {
            return None;
        }
        match self.state {
            State::Probing(PROBES) => {
                self.state = State::Announcing(0);
                self.handle_timeout(now_ms)
            }
            State::Probing(count) => {
                self.state = State::Probing(count + 1);
                self.due_ms = now_ms + PROBE_EVERY_MS;
                Some(Output::Multicast(self.probe()))
            }
            State::Announcing(count) => {
                let next = count + 1;
                self.state = if next == ANNOUNCEMENTS {
                    State::Answering
                } else {
                    State::Announcing(next)
                };
                self.due_ms = now_ms + SECOND_MS;
                let records = self.records();
                self.sent_ms = records.iter().map(|record| (record.clone(), now_ms)).collect();
                Some(Output::Multicast(response(records)))
            }
            State::Answering => None,
        }
    }

    /// Handles a packet; returns the reply.
    pub(super) fn handle_input(&mut self, now_ms: u64, packet: &[u8], from: SocketAddr) -> Option<Output> {
        let message = Message::decode(packet)?;
        if message.is_response {
            // Responses come from the port of multicast DNS (RFC 6762, 6).
            if from.port() == PORT && message.answers.iter().any(|record| self.is_conflict(record)) {
                self.rename(now_ms);
            }
            return None;
        }
        if matches!(self.state, State::Probing(_)) {
            return None;
        }
        let is_asked = |record: &Record| {
            message.questions.iter().any(|question| {
                let kind_is_asked = question.kind == kind::ANY || question.kind == record.data.kind();
                kind_is_asked && question.name.is(&record.name)
            })
        };
        let mut records: Vec<Record> = self.records().into_iter().filter(is_asked).collect();
        if from.port() != PORT {
            return self.legacy(&message, records, from);
        }
        // Known answers are not repeated (RFC 6762, 7.1).
        records.retain(|record| {
            !message.answers.iter().any(|known| {
                known.name.is(&record.name) && known.data == record.data && known.ttl_s >= record.ttl_s / 2
            })
        });
        // Records multicast within the last second are not repeated, except in reply to a probe
        // (RFC 6762, 6).
        let is_probe = !message.authorities.is_empty();
        records.retain(|record| is_probe || !self.was_sent(record, now_ms));
        if records.is_empty() {
            return None;
        }
        for record in &records {
            self.sent_ms.retain(|(sent, _)| sent != record);
            self.sent_ms.push((record.clone(), now_ms));
        }
        Some(Output::Multicast(response(records)))
    }

    /// Returns the goodbye: all records with a lifetime of 0.
    pub(super) fn goodbye(&self) -> Option<Output> {
        if matches!(self.state, State::Probing(_)) {
            return None;
        }
        let mut records = self.records();
        for record in &mut records {
            record.ttl_s = 0;
        }
        Some(Output::Multicast(response(records)))
    }

    fn legacy(&self, query: &Message, mut records: Vec<Record>, from: SocketAddr) -> Option<Output> {
        if records.is_empty() {
            return None;
        }
        for record in &mut records {
            record.ttl_s = record.ttl_s.min(TTL_LEGACY_S);
            record.is_unique = false;
        }
        let mut message = response(records);
        message.id = query.id;
        message.questions.clone_from(&query.questions);
        Some(Output::Unicast(from, message))
    }

    fn was_sent(&self, record: &Record, now_ms: u64) -> bool {
        let sent = self.sent_ms.iter().find(|(sent, _)| sent == record);
        sent.is_some_and(|(_, at)| now_ms < at + SECOND_MS)
    }

    /// Returns whether a record has one of our names with other data.
    fn is_conflict(&self, record: &Record) -> bool {
        let own = self.unique_records();
        record.ttl_s > 0
            && own.iter().any(|own| own.name.is(&record.name) && own.data.kind() == record.data.kind())
            && !own.iter().any(|own| own.name.is(&record.name) && own.data == record.data)
            // TXT records are not decoded, and do not show who owns the name.
            && !matches!(record.data, Data::Other(_))
    }

    fn rename(&mut self, now_ms: u64) {
        self.number = self.number.saturating_add(1);
        self.state = State::Probing(0);
        self.sent_ms.clear();
        let pause_ms = if self.number > CONFLICTS_FAST {
            CONFLICTS_PAUSE_MS
        } else {
            PROBE_EVERY_MS
        };
        self.due_ms = now_ms + pause_ms;
    }

    /// Returns the label with its number, cut to the maximum length.
    fn labelled(&self, before: &str, after: &str) -> String {
        let end = if self.number > 1 {
            format!("{before}{}{after}", self.number)
        } else {
            String::new()
        };
        let room = LABEL_MAX - end.len();
        format!("{}{end}", &self.label[..self.label.floor_char_boundary(room)])
    }

    /// Returns the server's name among those of a service.
    fn instance(&self, service: &str) -> Name {
        Name::new(&[&self.labelled(" (", ")"), service, "_tcp", "local"])
    }

    /// Differs from the machine's own name, which another responder may own (avahi,
    /// systemd-resolved).
    fn host(&self) -> Name {
        const OWN: &str = "-ropeway";
        let number = if self.number > 1 {
            format!("-{}", self.number)
        } else {
            String::new()
        };
        let room = LABEL_MAX - OWN.len() - number.len();
        let label = &self.label[..self.label.floor_char_boundary(room)];
        Name::new(&[&format!("{label}{OWN}{number}"), "local"])
    }

    /// Returns the records whose names only this responder may have.
    fn unique_records(&self) -> Vec<Record> {
        let record = |name: Name, ttl_s, data| Record {
            name,
            ttl_s,
            is_unique: true,
            data,
        };
        let service = |port| Data::Service {
            port,
            target: self.host(),
        };
        let mut records = vec![record(self.instance(SMB), TTL_HOST_S, service(self.port))];
        if !self.backups.is_empty() {
            // Nothing listens for `_adisk`: its port is that of discard, as other servers announce it.
            records.push(record(self.instance(DISKS), TTL_HOST_S, service(9)));
        }
        for address in &self.addresses {
            records.push(record(self.host(), TTL_HOST_S, Data::Address(*address)));
        }
        records
    }

    fn records(&self) -> Vec<Record> {
        let shared = |name, pointer| Record {
            name,
            ttl_s: TTL_OTHER_S,
            is_unique: false,
            data: Data::Pointer(pointer),
        };
        let listed = |service| {
            let kind = || Name::new(&[service, "_tcp", "local"]);
            // List of the service types (RFC 6763, 9).
            let kinds = Name::new(&["_services", "_dns-sd", "_udp", "local"]);
            [shared(kind(), self.instance(service)), shared(kinds, kind())]
        };
        let text = |name, texts| Record {
            name,
            ttl_s: TTL_OTHER_S,
            is_unique: true,
            data: Data::Text(texts),
        };
        let mut records = listed(SMB).to_vec();
        records.extend(self.unique_records());
        records.push(text(self.instance(SMB), Vec::new()));
        // Icon of the server in macOS' Finder.
        records.push(text(
            self.instance("_device-info"),
            vec![b"model=RackMac".to_vec()],
        ));
        if !self.backups.is_empty() {
            records.extend(listed(DISKS));
            records.push(text(self.instance(DISKS), self.disks()));
        }
        records
    }

    /// Returns the texts of `_adisk._tcp`: one about all disks, and one for each share. Apple documents the
    /// format only for its own servers; these are the flags that Samba's users announce: 0x80 says that Time
    /// Machine may use the disk, 0x02 that it does so over SMB.
    fn disks(&self) -> Vec<Vec<u8>> {
        let about = b"sys=waMa=0,adVF=0x100".to_vec();
        let shares = self.backups.iter().enumerate();
        let disk = |(at, share): (usize, &String)| format!("dk{at}=adVN={share},adVF=0x82").into_bytes();
        // A text has at most 255 bytes; the name of a share may be longer in UTF-8.
        let disks = shares.map(disk).filter(|text| text.len() <= 255);
        std::iter::once(about).chain(disks).collect()
    }

    fn probe(&self) -> Message {
        let ask = |name| Question {
            name,
            kind: kind::ANY,
        };
        let mut authorities = self.unique_records();
        for record in &mut authorities {
            record.is_unique = false;
        }
        Message {
            questions: vec![ask(self.instance(SMB)), ask(self.host())],
            authorities,
            ..Message::default()
        }
    }
}

fn response(answers: Vec<Record>) -> Message {
    Message {
        is_response: true,
        answers,
        ..Message::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUP_PEER: &str = "192.0.2.9:5353";

    fn peer() -> SocketAddr {
        GROUP_PEER.parse().unwrap()
    }

    fn ready() -> Responder {
        let mut responder = Responder::new("nas.example", 4450, vec!["192.0.2.7".parse().unwrap()], 0);
        let mut now = 0;
        while let Some(due) = responder.poll_timeout() {
            now = due;
            responder.handle_timeout(now);
        }
        assert_eq!(now, 3 * PROBE_EVERY_MS + SECOND_MS);
        responder
    }

    fn ask(labels: &[&str], kind: u16) -> Message {
        Message {
            questions: vec![Question {
                name: Name::new(labels),
                kind,
            }],
            ..Message::default()
        }
    }

    fn multicast(output: Option<Output>) -> Message {
        match output {
            Some(Output::Multicast(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_responder_probes_then_announces() {
        let mut responder = Responder::new("nas", 445, vec!["192.0.2.7".parse().unwrap()], 5);
        assert_eq!(responder.handle_timeout(4), None);
        for step in 0..3 {
            let probe = multicast(responder.handle_timeout(5 + step * PROBE_EVERY_MS));
            assert!(!probe.is_response && probe.questions.len() == 2 && probe.authorities.len() == 2);
        }
        assert_eq!(responder.goodbye(), None, "there is nothing to take back");
        let query = ask(&["_smb", "_tcp", "local"], kind::PTR).encode();
        assert_eq!(
            responder.handle_input(600, &query, peer()),
            None,
            "no reply while probing"
        );
        let announced = multicast(responder.handle_timeout(5 + 3 * PROBE_EVERY_MS));
        assert!(announced.is_response && announced.answers.len() == 6);
        assert_eq!(Message::decode(&announced.encode()).unwrap().answers.len(), 6);
        assert!(
            multicast(responder.goodbye())
                .answers
                .iter()
                .all(|record| record.ttl_s == 0)
        );
    }

    #[test]
    fn shares_for_time_machine_are_announced() {
        let addresses = vec!["192.0.2.7".parse().unwrap()];
        let long = "ö".repeat(80);
        let backups = vec!["Backups".to_owned(), long.repeat(2)];
        let mut responder = Responder::new("nas", 445, addresses, 0).with_backups(backups);
        while let Some(due) = responder.poll_timeout() {
            responder.handle_timeout(due);
        }
        let query = ask(&["_adisk", "_tcp", "local"], kind::PTR).encode();
        let answer = multicast(responder.handle_input(10_000, &query, peer()));
        let instance = Name::new(&["nas", "_adisk", "_tcp", "local"]);
        assert_eq!(answer.answers[0].data, Data::Pointer(instance));
        let query = ask(&["nas", "_adisk", "_tcp", "local"], kind::ANY).encode();
        let answer = multicast(responder.handle_input(20_000, &query, peer()));
        let texts = [
            b"sys=waMa=0,adVF=0x100".to_vec(),
            b"dk0=adVN=Backups,adVF=0x82".to_vec(),
        ];
        let data: Vec<&Data> = answer.answers.iter().map(|record| &record.data).collect();
        assert!(data.contains(&&Data::Text(texts.to_vec())), "{data:?}");
        assert!(
            data.iter()
                .any(|data| matches!(data, Data::Service { port: 9, .. }))
        );
        let query = ask(&["_adisk", "_tcp", "local"], kind::PTR).encode();
        assert_eq!(ready().handle_input(10_000, &query, peer()), None);
    }

    #[test]
    fn own_records_are_sent_at_most_once_a_second() {
        let mut responder = ready();
        let query = ask(&["_SMB", "_tcp", "Local"], kind::PTR);
        let answer = multicast(responder.handle_input(10_000, &query.encode(), peer()));
        assert_eq!(answer.answers.len(), 1);
        assert_eq!(
            answer.answers[0].data,
            Data::Pointer(Name::new(&["nas", "_smb", "_tcp", "local"]))
        );
        assert_eq!(responder.handle_input(10_999, &query.encode(), peer()), None);
        assert!(responder.handle_input(11_000, &query.encode(), peer()).is_some());
        let known = Message {
            answers: answer.answers,
            ..query
        };
        assert_eq!(
            responder.handle_input(20_000, &known.encode(), peer()),
            None,
            "a known answer is not repeated"
        );
        let host = ask(&["nas-ropeway", "local"], kind::A).encode();
        assert_eq!(
            multicast(responder.handle_input(30_000, &host, peer()))
                .answers
                .len(),
            1
        );
        for other in [&["_ipp", "_tcp", "local"][..], &["nas", "local"], &[]] {
            let other = ask(other, kind::ANY).encode();
            assert_eq!(responder.handle_input(30_000, &other, peer()), None);
        }
    }

    #[test]
    fn legacy_dns_clients_get_unicast_replies() {
        let mut responder = ready();
        let mut query = ask(&["nas", "_smb", "_tcp", "local"], kind::ANY);
        query.id = 99;
        let from = "192.0.2.9:40000".parse().unwrap();
        let Some(Output::Unicast(to, answer)) = responder.handle_input(10_000, &query.encode(), from) else {
            panic!("no answer");
        };
        assert_eq!((to, answer.id, &answer.questions), (from, 99, &query.questions));
        assert!(answer.answers.len() == 2 && answer.answers.iter().all(|record| record.ttl_s <= 10));
    }

    #[test]
    fn a_name_conflict_changes_the_name() {
        let mut responder = ready();
        let theirs = |data| {
            response(vec![Record {
                name: Name::new(&["NAS", "_smb", "_tcp", "local"]),
                ttl_s: 120,
                is_unique: true,
                data,
            }])
            .encode()
        };
        let service = |port, host| {
            theirs(Data::Service {
                port,
                target: Name::new(&[host, "local"]),
            })
        };
        let own = service(4450, "nas-ropeway");
        responder.handle_input(10_000, &own, peer());
        assert_eq!(
            responder.poll_timeout(),
            None,
            "an echo of our own record is no conflict"
        );
        let wrong_port = "192.0.2.9:99".parse().unwrap();
        responder.handle_input(10_000, &service(445, "other"), wrong_port);
        assert_eq!(responder.poll_timeout(), None);
        responder.handle_input(10_000, &service(445, "other"), peer());
        let probe = multicast(responder.handle_timeout(10_250));
        assert_eq!(
            probe.questions[0].name,
            Name::new(&["nas (2)", "_smb", "_tcp", "local"])
        );
        assert_eq!(probe.questions[1].name, Name::new(&["nas-ropeway-2", "local"]));
    }

    #[test]
    fn long_names_are_cut_at_a_character_boundary() {
        let mut responder = Responder::new(&"ö".repeat(60), 445, Vec::new(), 0);
        for _ in 0..20 {
            let packet = multicast(responder.handle_timeout(u64::MAX / 2)).encode();
            assert!(Message::decode(&packet).is_some());
            responder.rename(0);
        }
    }

    proptest! {
        #[test]
        fn random_input_never_panics(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
            _ = ready().handle_input(10_000, &packet, peer());
        }
    }
}
