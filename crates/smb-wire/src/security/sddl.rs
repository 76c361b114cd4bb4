//! Security descriptors as text: the Security Descriptor Definition Language ([MS-DTYP] 2.5.1).
//!
//! `O:BAG:SYD:PAI(A;OICI;FA;;;SY)(A;;0x1200a9;;;BU)`: owner, group, DACL with flags, entries of
//! type; flags; rights; two GUIDs of object entries (none here); SID. Text leaves out what the language has no words for:
//! the `DEFAULTED`, `SERVER_SECURITY`, `DACL_TRUSTED` and resource manager bits, and a revision higher than the entries
//! need. Opaque entries cannot be said, and aliases that depend on a domain (`DA`, `LA`, …) cannot be understood,
//! as no domain is known here: both are errors rather than a descriptor that means something else.

use std::fmt::Write as _;

use super::{AccessMask, Ace, AceFlags, AceKind, Acl, ControlFlags, SecurityDescriptor, Sid};

/// Why a descriptor and its text do not correspond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SddlFault {
    /// Neither owner, group nor list begins here, or one comes twice.
    #[error("expected O:, G:, D: or S:, each once")]
    Section,
    /// Not a SID or an alias.
    #[error("not a security identifier, nor an alias that needs no domain")]
    Sid,
    /// An entry's type is none of `A`, `D` and `AU`.
    #[error("an entry of a type that is not supported")]
    AceType,
    /// Unknown flags of a list or an entry.
    #[error("unknown flags")]
    Flags,
    /// Rights that are neither letters nor a number.
    #[error("unknown rights")]
    Rights,
    /// An entry is not six fields between parentheses.
    #[error("an entry is not of the form (type;flags;rights;;;sid)")]
    Entry,
    /// A list would be longer than 65,535 bytes.
    #[error("the list is too long")]
    TooLong,
}

/// A fault and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} (at byte {at})")]
pub struct SddlError {
    /// What is wrong.
    pub fault: SddlFault,
    /// Where in the text, in bytes; when printing, where the text would have gone on.
    pub at: usize,
}

type Result<T> = std::result::Result<T, SddlError>;

/// Well-known SIDs ([MS-DTYP] 2.4.2.4) whose aliases need no domain: alias, authority, sub-authorities.
const ALIASES: &[(&str, u64, &[u32])] = &[
    ("WD", 1, &[0]),
    ("CO", 3, &[0]),
    ("CG", 3, &[1]),
    ("OW", 3, &[4]),
    ("NU", 5, &[2]),
    ("IU", 5, &[4]),
    ("SU", 5, &[6]),
    ("AN", 5, &[7]),
    ("ED", 5, &[9]),
    ("PS", 5, &[10]),
    ("AU", 5, &[11]),
    ("RC", 5, &[12]),
    ("SY", 5, &[18]),
    ("LS", 5, &[19]),
    ("NS", 5, &[20]),
    ("WR", 5, &[33]),
    ("BA", 5, &[32, 544]),
    ("BU", 5, &[32, 545]),
    ("BG", 5, &[32, 546]),
    ("PU", 5, &[32, 547]),
    ("AO", 5, &[32, 548]),
    ("SO", 5, &[32, 549]),
    ("PO", 5, &[32, 550]),
    ("BO", 5, &[32, 551]),
    ("RE", 5, &[32, 552]),
    ("RU", 5, &[32, 554]),
    ("RD", 5, &[32, 555]),
    ("NO", 5, &[32, 556]),
    ("MU", 5, &[32, 558]),
    ("LU", 5, &[32, 559]),
    ("IS", 5, &[32, 568]),
    ("CY", 5, &[32, 569]),
    ("ER", 5, &[32, 573]),
    ("CD", 5, &[32, 574]),
    ("RA", 5, &[32, 575]),
    ("ES", 5, &[32, 576]),
    ("MS", 5, &[32, 577]),
    ("HA", 5, &[32, 578]),
    ("AA", 5, &[32, 579]),
    ("RM", 5, &[32, 580]),
    ("UD", 5, &[84, 0, 0, 0, 0, 0]),
    ("AC", 15, &[2, 1]),
    ("LW", 16, &[4096]),
    ("ME", 16, &[8192]),
    ("MP", 16, &[8448]),
    ("HI", 16, &[12288]),
    ("SI", 16, &[16384]),
];

/// Rights of files that have a word of their own; printed if they are all of the mask.
const FILE_RIGHTS: &[(&str, AccessMask)] = &[
    ("FA", AccessMask::FILE_ALL),
    ("FR", AccessMask::FILE_GENERIC_READ),
    ("FW", AccessMask::FILE_GENERIC_WRITE),
    ("FX", AccessMask::FILE_GENERIC_EXECUTE),
];

/// Rights of registry keys: understood, never printed.
const KEY_RIGHTS: &[(&str, AccessMask)] = &[
    ("KA", AccessMask::from_bits_retain(0x000F_003F)),
    ("KR", AccessMask::from_bits_retain(0x0002_0019)),
    ("KW", AccessMask::from_bits_retain(0x0002_0006)),
    ("KX", AccessMask::from_bits_retain(0x0002_0019)),
];

/// Single rights, in the order in which Windows prints them; the low ones bear directory-service names.
const RIGHTS: &[(&str, AccessMask)] = &[
    ("CC", AccessMask::from_bits_retain(0x0000_0001)),
    ("DC", AccessMask::from_bits_retain(0x0000_0002)),
    ("LC", AccessMask::from_bits_retain(0x0000_0004)),
    ("SW", AccessMask::from_bits_retain(0x0000_0008)),
    ("RP", AccessMask::from_bits_retain(0x0000_0010)),
    ("WP", AccessMask::from_bits_retain(0x0000_0020)),
    ("DT", AccessMask::from_bits_retain(0x0000_0040)),
    ("LO", AccessMask::from_bits_retain(0x0000_0080)),
    ("CR", AccessMask::from_bits_retain(0x0000_0100)),
    ("SD", AccessMask::DELETE),
    ("RC", AccessMask::READ_CONTROL),
    ("WD", AccessMask::WRITE_DAC),
    ("WO", AccessMask::WRITE_OWNER),
    ("GA", AccessMask::GENERIC_ALL),
    ("GX", AccessMask::GENERIC_EXECUTE),
    ("GW", AccessMask::GENERIC_WRITE),
    ("GR", AccessMask::GENERIC_READ),
];

const ACE_FLAGS: &[(&str, AceFlags)] = &[
    ("OI", AceFlags::OBJECT_INHERIT),
    ("CI", AceFlags::CONTAINER_INHERIT),
    ("NP", AceFlags::NO_PROPAGATE_INHERIT),
    ("IO", AceFlags::INHERIT_ONLY),
    ("ID", AceFlags::INHERITED),
    ("SA", AceFlags::SUCCESSFUL_ACCESS),
    ("FA", AceFlags::FAILED_ACCESS),
];

const ACE_KINDS: &[(&str, AceKind)] = &[
    ("A", AceKind::Allowed),
    ("D", AceKind::Denied),
    ("AU", AceKind::Audit),
];

/// A list that is there and NULL, as Windows writes it.
const NULL_LIST: &str = "NO_ACCESS_CONTROL";

/// The bits of `Control` that speak of one list.
struct ListControl {
    present: ControlFlags,
    flags: [(&'static str, ControlFlags); 3],
}

const DACL: ListControl = ListControl {
    present: ControlFlags::DACL_PRESENT,
    flags: [
        ("P", ControlFlags::DACL_PROTECTED),
        ("AR", ControlFlags::DACL_AUTO_INHERIT_REQ),
        ("AI", ControlFlags::DACL_AUTO_INHERITED),
    ],
};

const SACL: ListControl = ListControl {
    present: ControlFlags::SACL_PRESENT,
    flags: [
        ("P", ControlFlags::SACL_PROTECTED),
        ("AR", ControlFlags::SACL_AUTO_INHERIT_REQ),
        ("AI", ControlFlags::SACL_AUTO_INHERITED),
    ],
};

impl SecurityDescriptor {
    /// As SDDL text, as Windows prints it.
    ///
    /// # Errors
    /// An entry is opaque or has a flag without a word.
    pub fn to_sddl(&self) -> Result<String> {
        let mut out = String::new();
        if let Some(owner) = &self.owner {
            out.push_str("O:");
            print_sid(&mut out, owner);
        }
        if let Some(group) = &self.group {
            out.push_str("G:");
            print_sid(&mut out, group);
        }
        let control = self.full_control();
        if control.contains(ControlFlags::DACL_PRESENT) {
            out.push_str("D:");
            print_list(&mut out, self.dacl.as_ref(), control, &DACL)?;
        }
        if control.contains(ControlFlags::SACL_PRESENT) {
            out.push_str("S:");
            print_list(&mut out, self.sacl.as_ref(), control, &SACL)?;
        }
        Ok(out)
    }

    /// From SDDL text.
    ///
    /// # Errors
    /// It is not SDDL, or says what is not supported here.
    pub fn from_sddl(text: &str) -> Result<Self> {
        let mut parser = Parser { text, rest: text };
        let mut descriptor = Self {
            control: ControlFlags::SELF_RELATIVE,
            ..Self::default()
        };
        while !parser.rest.is_empty() {
            let fault = parser.fault(SddlFault::Section);
            let control = descriptor.control;
            if parser.take("O:") && descriptor.owner.is_none() {
                descriptor.owner = Some(parser.sid()?);
            } else if parser.take("G:") && descriptor.group.is_none() {
                descriptor.group = Some(parser.sid()?);
            } else if parser.take("D:") && !control.contains(DACL.present) {
                descriptor.dacl = parser.list(&mut descriptor.control, &DACL)?;
            } else if parser.take("S:") && !control.contains(SACL.present) {
                descriptor.sacl = parser.list(&mut descriptor.control, &SACL)?;
            } else {
                return Err(fault);
            }
        }
        Ok(descriptor)
    }
}

fn print_sid(out: &mut String, sid: &Sid) {
    let alias = ALIASES
        .iter()
        .find(|(_, authority, numbers)| *authority == sid.authority() && *numbers == sid.sub_authorities());
    match alias {
        Some((alias, ..)) => out.push_str(alias),
        // Writing to a String does not fail.
        None => _ = write!(out, "{sid}"),
    }
}

fn print_list(out: &mut String, acl: Option<&Acl>, control: ControlFlags, list: &ListControl) -> Result<()> {
    for (word, flag) in list.flags {
        if control.contains(flag) {
            out.push_str(word);
        }
    }
    let Some(acl) = acl else {
        out.push_str(NULL_LIST);
        return Ok(());
    };
    for ace in &acl.aces {
        print_ace(out, ace)?;
    }
    Ok(())
}

fn print_ace(out: &mut String, ace: &Ace) -> Result<()> {
    let at = out.len();
    let Ace::Basic {
        kind,
        flags,
        mask,
        sid,
    } = ace
    else {
        let fault = SddlFault::AceType;
        return Err(SddlError { fault, at });
    };
    out.push('(');
    out.extend(
        ACE_KINDS
            .iter()
            .filter(|(_, known)| known == kind)
            .map(|(word, _)| *word),
    );
    out.push(';');
    let mut unsaid = *flags;
    for (word, flag) in ACE_FLAGS {
        if flags.contains(*flag) {
            out.push_str(word);
            unsaid = unsaid.difference(*flag);
        }
    }
    if !unsaid.is_empty() {
        let fault = SddlFault::Flags;
        return Err(SddlError { fault, at });
    }
    out.push(';');
    print_rights(out, *mask);
    out.push_str(";;;");
    print_sid(out, sid);
    out.push(')');
    Ok(())
}

fn print_rights(out: &mut String, mask: AccessMask) {
    if let Some((word, _)) = FILE_RIGHTS.iter().find(|(_, rights)| *rights == mask) {
        out.push_str(word);
        return;
    }
    let all = RIGHTS
        .iter()
        .fold(AccessMask::default(), |all, (_, right)| all | *right);
    if mask.is_empty() || !all.contains(mask) {
        _ = write!(out, "0x{:x}", mask.bits());
        return;
    }
    out.extend(
        RIGHTS
            .iter()
            .filter(|(_, right)| mask.contains(*right))
            .map(|(word, _)| *word),
    );
}

/// What is left of a text.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn fault(&self, fault: SddlFault) -> SddlError {
        let at = self.text.len() - self.rest.len();
        SddlError { fault, at }
    }

    /// Takes a word off the front, if it is there.
    fn take(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sid(&mut self) -> Result<Sid> {
        let fault = self.fault(SddlFault::Sid);
        if let Some((sid, rest)) = Sid::parse_prefix(self.rest) {
            self.rest = rest;
            return Ok(sid);
        }
        for (alias, authority, numbers) in ALIASES {
            if self.take(alias) {
                return Sid::new(*authority, numbers).ok_or(fault);
            }
        }
        Err(fault)
    }

    fn list(&mut self, control: &mut ControlFlags, list: &ListControl) -> Result<Option<Acl>> {
        *control |= list.present;
        // `NO_ACCESS_CONTROL` stands among the flags.
        let mut is_null = false;
        loop {
            if self.take(NULL_LIST) {
                is_null = true;
            } else if let Some((_, flag)) = list.flags.iter().find(|(word, _)| self.take(word)) {
                *control |= *flag;
            } else {
                break;
            }
        }
        let mut aces = Vec::new();
        let too_long = self.fault(SddlFault::TooLong);
        let mut length = Acl::default().wire_len();
        while self.rest.starts_with('(') {
            let ace = self.ace()?;
            length += ace.wire_len();
            if length > Acl::WIRE_LEN_MAX {
                return Err(too_long);
            }
            aces.push(ace);
        }
        match is_null {
            true if aces.is_empty() => Ok(None),
            true => Err(self.fault(SddlFault::Entry)),
            false => Ok(Some(Acl::new(aces))),
        }
    }

    fn ace(&mut self) -> Result<Ace> {
        self.take("(");
        let at = self.fault(SddlFault::AceType);
        let word = self.field()?;
        let (_, kind) = *ACE_KINDS.iter().find(|(known, _)| *known == word).ok_or(at)?;
        let at = self.fault(SddlFault::Flags);
        let flags = words(self.field()?, ACE_FLAGS, |all: AceFlags, flag| all | flag).ok_or(at)?;
        let at = self.fault(SddlFault::Rights);
        let mask = rights(self.field()?).ok_or(at)?;
        // Two GUIDs, which only object entries have.
        for _ in 0..2 {
            let at = self.fault(SddlFault::AceType);
            if !self.field()?.is_empty() {
                return Err(at);
            }
        }
        let sid = self.sid()?;
        if !self.take(")") {
            return Err(self.fault(SddlFault::Entry));
        }
        Ok(Ace::Basic {
            kind,
            flags,
            mask,
            sid,
        })
    }

    /// Up to the next semicolon.
    fn field(&mut self) -> Result<&'a str> {
        let (field, rest) = self.rest.split_once(';').ok_or(self.fault(SddlFault::Entry))?;
        self.rest = rest;
        Ok(field)
    }
}

/// Words of two letters, one after the other.
fn words<F: Copy + Default>(mut text: &str, known: &[(&str, F)], join: impl Fn(F, F) -> F) -> Option<F> {
    let mut all = F::default();
    while !text.is_empty() {
        let (flag, rest) = known
            .iter()
            .find_map(|(word, flag)| Some((*flag, text.strip_prefix(word)?)))?;
        all = join(all, flag);
        text = rest;
    }
    Some(all)
}

/// Rights as words, or as a number (hexadecimal after `0x`, else decimal).
fn rights(text: &str) -> Option<AccessMask> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    match (digits, is_number) {
        (Some(digits), _) if digits.starts_with('+') => None,
        (Some(digits), _) => u32::from_str_radix(digits, 16)
            .ok()
            .map(AccessMask::from_bits_retain),
        (None, true) => text.parse().ok().map(AccessMask::from_bits_retain),
        (None, false) => {
            let known: Vec<_> = [RIGHTS, FILE_RIGHTS, KEY_RIGHTS].concat();
            words(text, &known, |all: AccessMask, right| all | right)
        }
    }
}
