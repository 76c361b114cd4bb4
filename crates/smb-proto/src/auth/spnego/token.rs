//! SPNEGO's tokens (RFC 4178 4.2, [MS-SPNG] 2.2.1), both sides.

use super::der::{Der, element, optional, tag};
use crate::auth::Oid;
use ropeway_smb_wire::{Fault, Result};

/// `MechTypeList` as its sender encoded it: MICs are over these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MechTypes<'a>(pub(super) &'a [u8]);

impl<'a> MechTypes<'a> {
    /// Contents of the object identifiers, in order; stops at the first that is none.
    pub(super) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut list = Der::new(self.0, "MechTypeList")
            .within(tag::SEQUENCE, "MechTypeList")
            .ok();
        std::iter::from_fn(move || list.as_mut()?.expect(tag::OID).ok())
    }

    /// The list's bytes.
    pub(super) fn encode(oids: impl Iterator<Item = Oid>) -> Vec<u8> {
        let oids: Vec<_> = oids.map(|oid| element(tag::OID, &[oid.0])).collect();
        element(tag::SEQUENCE, &[&oids.concat()])
    }
}

/// `NegTokenInit`, and `NegTokenInit2` of servers that speak first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NegTokenInit<'a> {
    pub(super) mech_types: MechTypes<'a>,
    /// The first mechanism's first token.
    pub(super) mech_token: Option<&'a [u8]>,
    pub(super) mech_list_mic: Option<&'a [u8]>,
}

/// What servers put where a hint could be ([MS-SPNG] 2.2.1).
const HINT_NAME: &[u8] = b"not_defined_in_RFC4178@please_ignore";

impl<'a> NegTokenInit<'a> {
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self> {
        const NAME: &str = "NegTokenInit";
        let mut outer = Der::new(bytes, NAME);
        // GSS-API's frame; some leave it out.
        if outer.peek() == Some(tag::APPLICATION_0) {
            outer = outer.within(tag::APPLICATION_0, NAME)?;
            let oid = outer.expect(tag::OID)?;
            if oid != Oid::SPNEGO.0 {
                return Err(outer.fault(Fault::Signature));
            }
        }
        let mut token = outer.within(tag::context(0), NAME)?.within(tag::SEQUENCE, NAME)?;
        let list = token.expect(tag::context(0))?;
        Der::new(list, NAME).expect(tag::SEQUENCE)?;
        // reqFlags: deprecated (RFC 4178 4.2.1).
        token.optional(1, NAME)?;
        let mech_token = octets(token.optional(2, NAME)?)?;
        // [3] is the MIC, or NegTokenInit2's hints with the MIC in [4].
        let mut mech_list_mic = None;
        if let Some(mut third) = token.optional(3, NAME)? {
            if third.peek() == Some(tag::OCTET_STRING) {
                mech_list_mic = Some(third.expect(tag::OCTET_STRING)?);
            } else {
                third.expect(tag::SEQUENCE)?;
                mech_list_mic = octets(token.optional(4, NAME)?)?;
            }
        }
        Ok(Self {
            mech_types: MechTypes(list),
            mech_token,
            mech_list_mic,
        })
    }

    /// The client's first token; never with a MIC, since no mechanism is done yet.
    pub(super) fn encode(mech_types: &[u8], mech_token: Option<&[u8]>) -> Vec<u8> {
        frame(&[
            &element(tag::context(0), &[mech_types]),
            &optional(2, tag::OCTET_STRING, mech_token),
        ])
    }

    /// The server's, when it speaks first ([MS-SPNG] 3.2.5.2).
    pub(super) fn encode_hint(mech_types: &[u8]) -> Vec<u8> {
        let hint = element(tag::context(0), &[&element(tag::GENERAL_STRING, &[HINT_NAME])]);
        frame(&[
            &element(tag::context(0), &[mech_types]),
            &element(tag::context(3), &[&element(tag::SEQUENCE, &[&hint])]),
        ])
    }
}

fn frame(fields: &[&[u8]]) -> Vec<u8> {
    let token = element(tag::context(0), &[&element(tag::SEQUENCE, fields)]);
    element(
        tag::APPLICATION_0,
        &[&element(tag::OID, &[Oid::SPNEGO.0]), &token],
    )
}

fn octets(field: Option<Der<'_>>) -> Result<Option<&[u8]>> {
    field.map(|mut field| field.expect(tag::OCTET_STRING)).transpose()
}

/// Where the negotiation stands, in its sender's eyes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NegState {
    AcceptCompleted = 0,
    AcceptIncomplete = 1,
    Reject = 2,
    RequestMic = 3,
}

/// `NegTokenResp`: every token but the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NegTokenResp<'a> {
    pub(super) state: Option<NegState>,
    /// Contents of the object identifier.
    pub(super) mechanism: Option<&'a [u8]>,
    pub(super) token: Option<&'a [u8]>,
    pub(super) mech_list_mic: Option<&'a [u8]>,
}

impl<'a> NegTokenResp<'a> {
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self> {
        const NAME: &str = "NegTokenResp";
        let mut token = Der::new(bytes, NAME)
            .within(tag::context(1), NAME)?
            .within(tag::SEQUENCE, NAME)?;
        let state = match token.optional(0, NAME)? {
            None => None,
            Some(mut field) => Some(match field.expect(tag::ENUMERATED)? {
                [0] => NegState::AcceptCompleted,
                [1] => NegState::AcceptIncomplete,
                [2] => NegState::Reject,
                [3] => NegState::RequestMic,
                _ => return Err(field.fault(Fault::Value)),
            }),
        };
        let mechanism = match token.optional(1, NAME)? {
            None => None,
            Some(mut field) => Some(field.expect(tag::OID)?),
        };
        Ok(Self {
            state,
            mechanism,
            token: octets(token.optional(2, NAME)?)?,
            mech_list_mic: octets(token.optional(3, NAME)?)?,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let state = self.state.map(|state| [state as u8]);
        let fields = [
            optional(0, tag::ENUMERATED, state.as_ref().map(|state| &state[..])),
            optional(1, tag::OID, self.mechanism),
            optional(2, tag::OCTET_STRING, self.token),
            optional(3, tag::OCTET_STRING, self.mech_list_mic),
        ];
        element(tag::context(1), &[&element(tag::SEQUENCE, &[&fields.concat()])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{anatomy, hex};
    use proptest::prelude::*;

    /// Tokens of Windows, as they lie in the published conversation.
    #[test]
    fn published_tokens() {
        let message = hex(anatomy::NEGOTIATE_RESPONSE);
        let hint = NegTokenInit::decode(&message[0x80..0x1C0]).unwrap();
        let oids: Vec<_> = hint.mech_types.iter().collect();
        assert_eq!(oids.len(), 2, "NEGOEX and NTLM");
        assert_eq!(oids[1], Oid::NTLMSSP.0);
        assert!(hint.mech_token.unwrap().starts_with(b"NEGOEXTS"));

        let message = hex(anatomy::SETUP_REQUEST_1);
        let init = NegTokenInit::decode(&message[0x58..]).unwrap();
        assert!(init.mech_token.unwrap().starts_with(b"NTLMSSP\0"));
        assert_eq!(
            NegTokenInit::encode(init.mech_types.0, init.mech_token),
            message[0x58..]
        );
        assert_eq!(MechTypes::encode([Oid::NTLMSSP].into_iter()), init.mech_types.0);

        for (message, at, state) in [
            (anatomy::SETUP_RESPONSE_1, 0x48, NegState::AcceptIncomplete),
            (anatomy::SETUP_REQUEST_2, 0x58, NegState::AcceptIncomplete),
            (anatomy::SETUP_RESPONSE_2, 0x48, NegState::AcceptCompleted),
        ] {
            let message = hex(message);
            let resp = NegTokenResp::decode(&message[at..]).unwrap();
            assert_eq!(resp.state, Some(state));
            assert_eq!(resp.encode(), message[at..]);
        }
    }

    #[test]
    fn hints_are_ignored() {
        let list = MechTypes::encode([Oid::KERBEROS, Oid::NTLMSSP].into_iter());
        let bytes = NegTokenInit::encode_hint(&list);
        let hint = NegTokenInit::decode(&bytes).unwrap();
        assert_eq!(hint.mech_types, MechTypes(&list));
        assert_eq!((hint.mech_token, hint.mech_list_mic), (None, None));
    }

    proptest! {
        #[test]
        fn tokens_round_trip(
            state in prop::option::of(0..4_usize),
            mechanism in prop::option::of(proptest::collection::vec(any::<u8>(), 0..12)),
            token in prop::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
            mic in prop::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
        ) {
            use NegState::{AcceptCompleted, AcceptIncomplete, Reject, RequestMic};
            let resp = NegTokenResp {
                state: state.map(|at| [AcceptCompleted, AcceptIncomplete, Reject, RequestMic][at]),
                mechanism: mechanism.as_deref(),
                token: token.as_deref(),
                mech_list_mic: mic.as_deref(),
            };
            let bytes = resp.encode();
            prop_assert_eq!(NegTokenResp::decode(&bytes), Ok(resp));
            let list = MechTypes::encode([Oid::NTLMSSP].into_iter());
            let bytes = NegTokenInit::encode(&list, token.as_deref());
            let init = NegTokenInit { mech_types: MechTypes(&list), mech_token: token.as_deref(), mech_list_mic: None };
            prop_assert_eq!(NegTokenInit::decode(&bytes), Ok(init));
        }

        #[test]
        fn hostile_bytes_never_panic(
            noise in proptest::collection::vec(any::<u8>(), 0..80),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut: prop::sample::Index,
        ) {
            let message = hex(anatomy::SETUP_REQUEST_1);
            let reply = hex(anatomy::SETUP_RESPONSE_1);
            let hint = hex(anatomy::NEGOTIATE_RESPONSE);
            for bytes in [&message[0x58..], &reply[0x48..], &hint[0x80..0x1C0], &noise] {
                let mut bytes = bytes.to_vec();
                for (at, value) in &changes {
                    if !bytes.is_empty() {
                        let at = at.index(bytes.len());
                        bytes[at] = *value;
                    }
                }
                bytes.truncate(cut.index(bytes.len() + 1));
                if let Ok(init) = NegTokenInit::decode(&bytes) {
                    let _ = init.mech_types.iter().count();
                }
                let _ = NegTokenResp::decode(&bytes);
            }
        }
    }
}
