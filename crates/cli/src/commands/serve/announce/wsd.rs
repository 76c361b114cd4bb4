//! Messages of a WS-Discovery target (WS-Discovery, April 2005, with the Devices Profile of 2006
//! and Microsoft's computer type). Windows uses them to find servers for its Network folder. This
//! module handles text only and has no socket and no clock.
//!
//! ```text
//! multicast  Hello, Bye             the server starts and stops
//!            Probe → ProbeMatches   which devices are there?
//!            Resolve → ResolveMatches   what is this device's address?
//! HTTP POST  Get → GetResponse      what is the device's name?
//! ```
//!
//! Of a received message only a few texts are read, by their local names and in order. Nothing is
//! expanded. A text is returned to the sender only after a check that it is an identifier.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Maximum size in bytes of a received message; such messages fit in a datagram.
pub(super) const MESSAGE_MAX: usize = 8 << 10;
/// Maximum length of an identifier from a peer. A guess: `urn:uuid:` and 36 digits are usual.
const ID_MAX: usize = 128;

const DISCOVERY: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
const ANONYMOUS: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous";
const TO_ALL: &str = "urn:schemas-xmlsoap-org:ws:2005:04:discovery";
const TRANSFER: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer";

/// The server as a device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// `8-4-4-4-12` hexadecimal digits, the same at each start.
    pub(super) uuid: String,
    /// Host name, as it is resolved.
    pub(super) computer: String,
    /// Start of this run in seconds since 1970.
    pub(super) instance: u64,
    /// Port that serves the metadata.
    pub(super) port: u16,
}

/// The parts that make messages distinct: a new identifier and a sequence number.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) uuid: String,
    pub(super) number: u32,
}

impl Device {
    /// Returns the Hello message, sent at the start.
    pub(super) fn hello(&self, at: Ipv4Addr, stamp: &Stamp) -> String {
        let body = format!("<d:Hello>{}</d:Hello>", self.described(Some(at)));
        self.envelope(&format!("{DISCOVERY}/Hello"), TO_ALL, None, stamp, &body)
    }

    /// Returns the Bye message, sent at the end.
    pub(super) fn bye(&self, stamp: &Stamp) -> String {
        let body = format!("<d:Bye>{}</d:Bye>", self.reference());
        self.envelope(&format!("{DISCOVERY}/Bye"), TO_ALL, None, stamp, &body)
    }

    /// Returns the reply to a datagram if it asks for this device.
    pub(super) fn answer(&self, packet: &[u8], at: Ipv4Addr, stamp: &Stamp) -> Option<String> {
        let message = Message::read(packet)?;
        let (kind, description) = if message.action == format!("{DISCOVERY}/Probe") {
            // A probe without types asks for all devices. The prefix of a type may be any.
            let is_ours = |name: &str| matches!(name.rsplit(':').next(), Some("Device" | "Computer"));
            if !message.types.split_whitespace().all(is_ours) {
                return None;
            }
            ("Probe", self.described(None))
        } else if message.action == format!("{DISCOVERY}/Resolve") {
            if !message.endpoint.eq_ignore_ascii_case(&self.endpoint()) {
                return None;
            }
            ("Resolve", self.described(Some(at)))
        } else {
            return None;
        };
        let body = format!("<d:{kind}Matches><d:{kind}Match>{description}</d:{kind}Match></d:{kind}Matches>");
        let action = format!("{DISCOVERY}/{kind}Matches");
        Some(self.envelope(&action, ANONYMOUS, Some(message.id), stamp, &body))
    }

    /// Returns the reply to an HTTP request for the metadata.
    pub(super) fn metadata(&self, request: &[u8], stamp: &Stamp) -> Option<String> {
        let message = Message::read(request)?;
        if message.action != format!("{TRANSFER}/Get") {
            return None;
        }
        let name = escape(&self.computer);
        let endpoint = self.endpoint();
        let section = |dialect: &str, content: String| {
            format!(
                "<x:MetadataSection Dialect=\"http://schemas.xmlsoap.org/ws/2006/02/devprof/{dialect}\">{content}</x:MetadataSection>"
            )
        };
        let device = format!(
            "<p:ThisDevice><p:FriendlyName>{name}</p:FriendlyName><p:FirmwareVersion>{}</p:FirmwareVersion>\
             <p:SerialNumber>1</p:SerialNumber></p:ThisDevice>",
            env!("CARGO_PKG_VERSION")
        );
        let model = "<p:ThisModel><p:Manufacturer>Ropeway</p:Manufacturer><p:ModelName>ropeway serve</p:ModelName>\
                     <p:DeviceCategory>Computers</p:DeviceCategory></p:ThisModel>";
        let host = format!(
            "<p:Relationship Type=\"http://schemas.xmlsoap.org/ws/2006/02/devprof/host\"><p:Host>\
             <a:EndpointReference><a:Address>{endpoint}</a:Address></a:EndpointReference>\
             <p:Types>c:Computer</p:Types><p:ServiceId>{endpoint}</p:ServiceId>\
             <c:Computer>{name}/Workgroup:WORKGROUP</c:Computer></p:Host></p:Relationship>"
        );
        let body = format!(
            "<x:Metadata>{}{}{}</x:Metadata>",
            section("ThisDevice", device),
            section("ThisModel", model.to_owned()),
            section("Relationship", host)
        );
        let action = format!("{TRANSFER}/GetResponse");
        Some(self.envelope(&action, ANONYMOUS, Some(message.id), stamp, &body))
    }

    fn endpoint(&self) -> String {
        format!("urn:uuid:{}", self.uuid)
    }

    fn reference(&self) -> String {
        let endpoint = self.endpoint();
        format!("<a:EndpointReference><a:Address>{endpoint}</a:Address></a:EndpointReference>")
    }

    fn described(&self, at: Option<Ipv4Addr>) -> String {
        let addresses = at.map_or_else(String::new, |ip| {
            let at = SocketAddrV4::new(ip, self.port);
            format!("<d:XAddrs>http://{at}/{}</d:XAddrs>", self.uuid)
        });
        let reference = self.reference();
        format!(
            "{reference}<d:Types>p:Device c:Computer</d:Types>{addresses}<d:MetadataVersion>1</d:MetadataVersion>"
        )
    }

    fn envelope(
        &self,
        action: &str,
        to: &str,
        relates_to: Option<&str>,
        stamp: &Stamp,
        body: &str,
    ) -> String {
        let relates = relates_to.map_or_else(String::new, |id| format!("<a:RelatesTo>{id}</a:RelatesTo>"));
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
             <s:Envelope xmlns:s=\"http://www.w3.org/2003/05/soap-envelope\" \
             xmlns:a=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" xmlns:d=\"{DISCOVERY}\" \
             xmlns:p=\"http://schemas.xmlsoap.org/ws/2006/02/devprof\" \
             xmlns:x=\"http://schemas.xmlsoap.org/ws/2004/09/mex\" \
             xmlns:c=\"http://schemas.microsoft.com/windows/pub/2005/07\"><s:Header><a:To>{to}</a:To>\
             <a:Action>{action}</a:Action><a:MessageID>urn:uuid:{}</a:MessageID>{relates}\
             <d:AppSequence InstanceId=\"{}\" MessageNumber=\"{}\"/></s:Header><s:Body>{body}</s:Body></s:Envelope>",
            stamp.uuid, self.instance, stamp.number
        )
    }
}

/// The texts of a message that are used.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message<'a> {
    action: &'a str,
    id: &'a str,
    types: &'a str,
    /// The address in the endpoint reference.
    endpoint: &'a str,
}

impl<'a> Message<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > MESSAGE_MAX {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let mut message = Self::default();
        let mut in_reference = false;
        // Each part starts with a tag and continues with the text up to the next tag.
        for part in text.split('<').skip(1) {
            let (tag, text) = part.split_once('>')?;
            let name = tag.split([' ', '\t', '\r', '\n', '/']).next().unwrap_or_default();
            let name = name.rsplit(':').next().unwrap_or_default();
            let text = text.trim();
            let place = match name {
                "Action" => &mut message.action,
                "MessageID" => &mut message.id,
                "Types" => &mut message.types,
                "EndpointReference" => {
                    in_reference = true;
                    continue;
                }
                "Address" if in_reference => &mut message.endpoint,
                _ => continue,
            };
            if place.is_empty() {
                *place = text;
            }
        }
        let is_id = |text: &str| {
            let fine = |c: char| c.is_ascii_alphanumeric() || ":-._/{}".contains(c);
            !text.is_empty() && text.len() <= ID_MAX && text.chars().all(fine)
        };
        is_id(message.id).then_some(message)
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

    fn device() -> Device {
        Device {
            uuid: "00112233-4455-6677-8899-aabbccddeeff".to_owned(),
            computer: "a<b".to_owned(),
            instance: 7,
            port: 5357,
        }
    }

    fn stamp() -> Stamp {
        Stamp {
            uuid: "ffffffff-0000-0000-0000-000000000000".to_owned(),
            number: 3,
        }
    }

    fn ask(action: &str, id: &str, body: &str) -> Vec<u8> {
        format!(
            "<?xml version=\"1.0\"?>\n<soap:Envelope xmlns:soap=\"x\"><soap:Header><wsa:To>urn:x</wsa:To>\
             <wsa:Action>{action}</wsa:Action><wsa:MessageID>{id}</wsa:MessageID><wsa:ReplyTo><wsa:Address>{ANONYMOUS}</wsa:Address>\
             </wsa:ReplyTo></soap:Header><soap:Body>{body}</soap:Body></soap:Envelope>"
        )
        .into_bytes()
    }

    fn answer(action: &str, id: &str, body: &str) -> Option<String> {
        device().answer(&ask(&format!("{DISCOVERY}/{action}"), id, body), AT, &stamp())
    }

    #[test]
    fn probes_for_devices_are_answered() {
        for types in [
            "",
            "<wsd:Types>wsdp:Device</wsd:Types>",
            "<d:Types> pub:Computer </d:Types>",
        ] {
            let body = format!("<wsd:Probe>{types}</wsd:Probe>");
            let said = answer("Probe", "urn:uuid:1-2", &body).unwrap();
            assert!(said.contains("<a:RelatesTo>urn:uuid:1-2</a:RelatesTo>"), "{said}");
            assert!(
                said.contains("<d:ProbeMatches><d:ProbeMatch><a:EndpointReference>"),
                "{said}"
            );
            assert!(
                said.contains(&device().uuid) && said.contains("MessageNumber=\"3\""),
                "{said}"
            );
        }
        let printers = "<d:Probe><d:Types>wsdp:Device p:PrintDeviceType</d:Types></d:Probe>";
        assert_eq!(answer("Probe", "urn:uuid:1", printers), None);
        assert_eq!(
            answer("ProbeMatches", "urn:uuid:1", ""),
            None,
            "answers are not answered"
        );
        assert_eq!(answer("Hello", "urn:uuid:1", ""), None);
    }

    #[test]
    fn only_the_own_endpoint_is_resolved() {
        let resolve = |uuid: &str| {
            let body = format!(
                "<d:Resolve><a:EndpointReference><a:Address>urn:uuid:{uuid}</a:Address></a:EndpointReference></d:Resolve>"
            );
            answer("Resolve", "urn:uuid:1", &body)
        };
        let said = resolve(&device().uuid).unwrap();
        assert!(
            said.contains("<d:XAddrs>http://192.0.2.7:5357/00112233-"),
            "{said}"
        );
        assert_eq!(resolve("00112233-4455-6677-8899-000000000000"), None);
        assert_eq!(
            answer("Resolve", "urn:uuid:1", ""),
            None,
            "ReplyTo is no endpoint"
        );
    }

    #[test]
    fn unchecked_text_is_never_returned() {
        for id in ["", "a b", "x&amp;", "\"", &"x".repeat(ID_MAX + 1)] {
            assert_eq!(answer("Probe", id, "<d:Probe/>"), None, "{id}");
        }
        let get = ask(&format!("{TRANSFER}/Get"), "urn:uuid:9", "");
        let said = device().metadata(&get, &stamp()).unwrap();
        assert!(
            said.contains("<c:Computer>a&lt;b/Workgroup:WORKGROUP</c:Computer>"),
            "{said}"
        );
        assert!(said.contains("<a:RelatesTo>urn:uuid:9<"), "{said}");
        assert_eq!(device().metadata(&ask("x", "urn:uuid:9", ""), &stamp()), None);
        let long = ask(&format!("{TRANSFER}/Get"), "urn:uuid:9", &"x".repeat(MESSAGE_MAX));
        assert_eq!(device().metadata(&long, &stamp()), None);
    }

    #[test]
    fn every_message_is_well_formed() {
        let get = ask(&format!("{TRANSFER}/Get"), "urn:uuid:9", "");
        let texts = [
            device().hello(AT, &stamp()),
            device().bye(&stamp()),
            answer("Probe", "urn:uuid:1", "").unwrap(),
            device().metadata(&get, &stamp()).unwrap(),
        ];
        for text in texts {
            let mut open = Vec::new();
            for tag in text
                .split('<')
                .skip(2)
                .map(|part| part.split('>').next().unwrap())
            {
                match tag.strip_prefix('/') {
                    Some(name) => assert_eq!(open.pop(), Some(name), "{text}"),
                    None if tag.ends_with('/') => {}
                    None => open.push(tag.split(' ').next().unwrap()),
                }
            }
            assert!(open.is_empty(), "{open:?}");
        }
    }

    proptest! {
        #[test]
        fn random_input_never_panics(packet in "[<>/:a-zA-Z \"&]{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            _ = device().answer(packet.as_bytes(), AT, &stamp());
            _ = device().metadata(&bytes, &stamp());
        }
    }
}
