//! The three transactions: TRANSACTION ([MS-CIFS] 2.2.4.33), TRANSACTION2 (2.2.4.46), NT_TRANSACT
//! (2.2.4.62), with their secondary requests and their responses.
//!
//! A transaction carries setup words, parameters and data. What does not fit one message is split:
//! a request into secondary requests, a response into several. Every message says where its piece
//! belongs, and how long the whole will be; [`Assembly`](super::assembly::Assembly) puts pieces
//! together.

use ropeway_smb_wire::{DecodeErrorKind, Result, Writer};

use crate::header::Command;
use crate::message::{Block, write_block};
use crate::strings::Str;
use crate::words::{Reserved, words};

/// Which transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// TRANSACTION: pipes and RAP.
    Named,
    /// TRANSACTION2.
    Two,
    /// NT_TRANSACT.
    Nt,
}

impl Kind {
    /// Returns the kind of a primary request's command, or of a response's.
    pub fn of(command: Command) -> Option<Self> {
        Some(match command {
            Command::TRANSACTION => Self::Named,
            Command::TRANSACTION2 => Self::Two,
            Command::NT_TRANSACT => Self::Nt,
            _ => return None,
        })
    }

    /// Returns the kind of a secondary request's command.
    pub fn of_secondary(command: Command) -> Option<Self> {
        Some(match command {
            Command::TRANSACTION_SECONDARY => Self::Named,
            Command::TRANSACTION2_SECONDARY => Self::Two,
            Command::NT_TRANSACT_SECONDARY => Self::Nt,
            _ => return None,
        })
    }

    /// Returns the command of primary requests and responses.
    pub fn command(self) -> Command {
        match self {
            Self::Named => Command::TRANSACTION,
            Self::Two => Command::TRANSACTION2,
            Self::Nt => Command::NT_TRANSACT,
        }
    }
}

words! {
    /// Words of TRANSACTION and TRANSACTION2 before the setup words.
    struct RequestWords {
        total_parameters: u16,
        total_data: u16,
        max_parameters: u16,
        max_data: u16,
        max_setup: u8,
        reserved1: Reserved<1>,
        flags: u16,
        timeout: u32,
        reserved2: Reserved<2>,
        parameter_count: u16,
        parameter_offset: u16,
        data_count: u16,
        data_offset: u16,
        setup_count: u8,
        reserved3: Reserved<1>,
    }
}

words! {
    /// Words of NT_TRANSACT before the setup words.
    struct NtRequestWords {
        max_setup: u8,
        reserved1: Reserved<2>,
        total_parameters: u32,
        total_data: u32,
        max_parameters: u32,
        max_data: u32,
        parameter_count: u32,
        parameter_offset: u32,
        data_count: u32,
        data_offset: u32,
        setup_count: u8,
        function: u16,
    }
}

/// Lengths of a whole transaction, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of the parameters.
    pub parameters: usize,
    /// Of the data.
    pub data: usize,
}

/// What the client accepts as a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of parameters.
    pub parameters: u32,
    /// Bytes of data.
    pub data: u32,
    /// Setup words.
    pub setup: u8,
}

/// A primary request. Parameters and data may be the first pieces only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which transaction.
    pub kind: Kind,
    /// `Name`: of a pipe or mail slot (TRANSACTION only).
    pub name: Str,
    /// `Flags`: disconnect the tree 1, no response 2.
    pub flags: u16,
    /// Milliseconds that the server may wait (pipes).
    pub timeout: u32,
    /// `Function` (NT_TRANSACT only).
    pub function: u16,
    /// Setup words.
    pub setup: Vec<u16>,
    /// What the client accepts.
    pub limits: Limits,
    /// Length of the whole request.
    pub totals: Totals,
    /// Parameters.
    pub parameters: &'a [u8],
    /// Data.
    pub data: &'a [u8],
}

impl<'a> Request<'a> {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, pieces outside the message or longer than the whole.
    pub fn decode(kind: Kind, block: &Block<'a>, is_unicode: bool) -> Result<Self> {
        let mut reader = block.words();
        let (words, limits, function) = match kind {
            Kind::Nt => {
                let words = NtRequestWords::read(&mut reader)?;
                let limits = Limits {
                    parameters: words.max_parameters,
                    data: words.max_data,
                    setup: words.max_setup,
                };
                (Place::of_nt(&words), limits, words.function)
            }
            Kind::Named | Kind::Two => {
                let words = RequestWords::read(&mut reader)?;
                let limits = Limits {
                    parameters: u32::from(words.max_parameters),
                    data: u32::from(words.max_data),
                    setup: words.max_setup,
                };
                (Place::of(&words), limits, 0)
            }
        };
        let setup: Result<Vec<u16>> = (0..words.setup_count).map(|_| reader.u16()).collect();
        let name = match kind {
            Kind::Named => Str::read_z(&mut block.bytes(), is_unicode)?,
            Kind::Two | Kind::Nt => Str::empty(is_unicode),
        };
        let (parameters, data) = words.pieces(block)?;
        Ok(Self {
            kind,
            name,
            flags: words.flags,
            timeout: words.timeout,
            function,
            setup: setup?,
            limits,
            totals: words.totals,
            parameters,
            data,
        })
    }

    /// Appends the block. Parameters and data are aligned to four bytes.
    ///
    /// # Panics
    /// If the message would be longer than its 16-bit counts allow.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let fixed = match self.kind {
            Kind::Nt => 38,
            Kind::Named | Kind::Two => 28,
        };
        let start = w.position() + 1 + fixed + 2 * self.setup.len() + 2;
        let mut name = Vec::new();
        if self.kind != Kind::Nt {
            // A zero byte for TRANSACTION2. A UTF-16 name of TRANSACTION is aligned.
            match self.kind {
                Kind::Named => {
                    let mut before = vec![0; start];
                    self.name.write_z(&mut Writer::within(&mut before, 0));
                    name = before.split_off(start);
                }
                _ => name.push(0),
            }
        }
        let parameter_offset = (start + name.len()).next_multiple_of(4);
        let data_offset = (parameter_offset + self.parameters.len()).next_multiple_of(4);
        let place = Place {
            totals: self.totals,
            parameters: (self.parameters.len(), parameter_offset),
            data: (self.data.len(), data_offset),
            flags: self.flags,
            timeout: self.timeout,
            setup_count: self.setup.len() as u8,
        };
        write_block(
            w,
            |w| {
                match self.kind {
                    Kind::Nt => place.nt_words(self.limits, self.function).write(w),
                    Kind::Named | Kind::Two => place.words(self.limits).write(w),
                }
                w.units(&self.setup);
            },
            |w| {
                w.bytes(&name);
                w.align(4);
                w.bytes(self.parameters);
                if !self.data.is_empty() {
                    w.align(4);
                    w.bytes(self.data);
                }
            },
        );
    }

    /// Returns whether the request is in one message.
    pub fn is_whole(&self) -> bool {
        self.parameters.len() == self.totals.parameters && self.data.len() == self.totals.data
    }
}

/// Lengths and offsets of a request's pieces.
struct Place {
    totals: Totals,
    parameters: (usize, usize),
    data: (usize, usize),
    flags: u16,
    timeout: u32,
    setup_count: u8,
}

impl Place {
    fn of(words: &RequestWords) -> Self {
        Self {
            totals: Totals {
                parameters: usize::from(words.total_parameters),
                data: usize::from(words.total_data),
            },
            parameters: (
                usize::from(words.parameter_count),
                usize::from(words.parameter_offset),
            ),
            data: (usize::from(words.data_count), usize::from(words.data_offset)),
            flags: words.flags,
            timeout: words.timeout,
            setup_count: words.setup_count,
        }
    }

    fn of_nt(words: &NtRequestWords) -> Self {
        Self {
            totals: Totals {
                parameters: place(words.total_parameters),
                data: place(words.total_data),
            },
            parameters: (place(words.parameter_count), place(words.parameter_offset)),
            data: (place(words.data_count), place(words.data_offset)),
            flags: 0,
            timeout: 0,
            setup_count: words.setup_count,
        }
    }

    fn words(&self, limits: Limits) -> RequestWords {
        RequestWords {
            total_parameters: self.totals.parameters as u16,
            total_data: self.totals.data as u16,
            max_parameters: limits.parameters.min(0xFFFF) as u16,
            max_data: limits.data.min(0xFFFF) as u16,
            max_setup: limits.setup,
            flags: self.flags,
            timeout: self.timeout,
            parameter_count: self.parameters.0 as u16,
            parameter_offset: self.parameters.1 as u16,
            data_count: self.data.0 as u16,
            data_offset: self.data.1 as u16,
            setup_count: self.setup_count,
            ..RequestWords::default()
        }
    }

    fn nt_words(&self, limits: Limits, function: u16) -> NtRequestWords {
        NtRequestWords {
            max_setup: limits.setup,
            total_parameters: self.totals.parameters as u32,
            total_data: self.totals.data as u32,
            max_parameters: limits.parameters,
            max_data: limits.data,
            parameter_count: self.parameters.0 as u32,
            parameter_offset: self.parameters.1 as u32,
            data_count: self.data.0 as u32,
            data_offset: self.data.1 as u32,
            setup_count: self.setup_count,
            function,
            ..NtRequestWords::default()
        }
    }

    fn pieces<'a>(&self, block: &Block<'a>) -> Result<(&'a [u8], &'a [u8])> {
        let parameters = block.payload(self.parameters.1, self.parameters.0)?;
        let data = block.payload(self.data.1, self.data.0)?;
        if parameters.len() > self.totals.parameters || data.len() > self.totals.data {
            return Err(block.bytes().error(DecodeErrorKind::Bounds));
        }
        Ok((parameters, data))
    }
}

fn place(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

words! {
    /// Words of a response to TRANSACTION or TRANSACTION2 before the setup words, and of their
    /// secondary requests without `reserved1` and the setup words.
    struct ResponseWords {
        total_parameters: u16,
        total_data: u16,
        reserved1: Reserved<2>,
        parameter_count: u16,
        parameter_offset: u16,
        parameter_displacement: u16,
        data_count: u16,
        data_offset: u16,
        data_displacement: u16,
        setup_count: u8,
        reserved2: Reserved<1>,
    }
}

words! {
    /// Words of secondary requests.
    struct SecondaryWords {
        total_parameters: u16,
        total_data: u16,
        parameter_count: u16,
        parameter_offset: u16,
        parameter_displacement: u16,
        data_count: u16,
        data_offset: u16,
        data_displacement: u16,
    }
}

words! {
    /// Words of a response to NT_TRANSACT before the setup words, and of its secondary requests.
    struct NtPieceWords {
        reserved1: Reserved<3>,
        total_parameters: u32,
        total_data: u32,
        parameter_count: u32,
        parameter_offset: u32,
        parameter_displacement: u32,
        data_count: u32,
        data_offset: u32,
        data_displacement: u32,
        setup_count: u8,
    }
}

/// A piece of a transaction: a response or a secondary request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Length of the whole, which later pieces may lower.
    pub totals: Totals,
    /// Setup words of a response.
    pub setup: Vec<u16>,
    /// Parameters and their place in the whole.
    pub parameters: (usize, &'a [u8]),
    /// Data and their place in the whole.
    pub data: (usize, &'a [u8]),
}

impl<'a> Piece<'a> {
    /// Decodes a response. A response without words is the interim response to a primary request
    /// that secondary ones follow: `None`.
    ///
    /// # Errors
    /// Truncation, pieces outside the message.
    pub fn decode_response(kind: Kind, block: &Block<'a>) -> Result<Option<Self>> {
        if block.word_count() == 0 {
            return Ok(None);
        }
        let mut reader = block.words();
        let (mut piece, setup_count) = match kind {
            Kind::Nt => {
                let words = NtPieceWords::read(&mut reader)?;
                (Self::of_nt(&words, block)?, words.setup_count)
            }
            Kind::Named | Kind::Two => {
                let words = ResponseWords::read(&mut reader)?;
                let secondary = SecondaryWords {
                    total_parameters: words.total_parameters,
                    total_data: words.total_data,
                    parameter_count: words.parameter_count,
                    parameter_offset: words.parameter_offset,
                    parameter_displacement: words.parameter_displacement,
                    data_count: words.data_count,
                    data_offset: words.data_offset,
                    data_displacement: words.data_displacement,
                };
                (Self::of(&secondary, block)?, words.setup_count)
            }
        };
        let setup: Result<Vec<u16>> = (0..setup_count).map(|_| reader.u16()).collect();
        piece.setup = setup?;
        Ok(Some(piece))
    }

    /// Decodes a secondary request.
    ///
    /// # Errors
    /// Truncation, pieces outside the message.
    pub fn decode_secondary(kind: Kind, block: &Block<'a>) -> Result<Self> {
        let mut reader = block.words();
        match kind {
            Kind::Nt => Self::of_nt(&NtPieceWords::read(&mut reader)?, block),
            Kind::Named | Kind::Two => Self::of(&SecondaryWords::read(&mut reader)?, block),
        }
    }

    fn of(words: &SecondaryWords, block: &Block<'a>) -> Result<Self> {
        let piece = |count: u16, offset: u16| block.payload(usize::from(offset), usize::from(count));
        Ok(Self {
            totals: Totals {
                parameters: usize::from(words.total_parameters),
                data: usize::from(words.total_data),
            },
            setup: Vec::new(),
            parameters: (
                usize::from(words.parameter_displacement),
                piece(words.parameter_count, words.parameter_offset)?,
            ),
            data: (
                usize::from(words.data_displacement),
                piece(words.data_count, words.data_offset)?,
            ),
        })
    }

    fn of_nt(words: &NtPieceWords, block: &Block<'a>) -> Result<Self> {
        let piece = |count: u32, offset: u32| block.payload(place(offset), place(count));
        Ok(Self {
            totals: Totals {
                parameters: place(words.total_parameters),
                data: place(words.total_data),
            },
            setup: Vec::new(),
            parameters: (
                place(words.parameter_displacement),
                piece(words.parameter_count, words.parameter_offset)?,
            ),
            data: (
                place(words.data_displacement),
                piece(words.data_count, words.data_offset)?,
            ),
        })
    }

    /// Appends the block of a response.
    ///
    /// # Panics
    /// If the message would be longer than its 16-bit counts allow.
    pub fn encode_response(&self, kind: Kind, w: &mut Writer<'_>) {
        let fixed = if kind == Kind::Nt { 36 } else { 20 } + 2 * self.setup.len();
        self.encode(w, fixed, |piece, offsets, w| {
            match kind {
                Kind::Nt => piece.nt_words(offsets).write(w),
                Kind::Named | Kind::Two => ResponseWords {
                    total_parameters: piece.totals.parameters as u16,
                    total_data: piece.totals.data as u16,
                    parameter_count: piece.parameters.1.len() as u16,
                    parameter_offset: offsets.0 as u16,
                    parameter_displacement: piece.parameters.0 as u16,
                    data_count: piece.data.1.len() as u16,
                    data_offset: offsets.1 as u16,
                    data_displacement: piece.data.0 as u16,
                    setup_count: piece.setup.len() as u8,
                    ..ResponseWords::default()
                }
                .write(w),
            }
            w.units(&piece.setup);
        });
    }

    /// Appends the block of a secondary request. `fid` is a word of TRANSACTION2 alone.
    ///
    /// # Panics
    /// As [`Self::encode_response`].
    pub fn encode_secondary(&self, kind: Kind, fid: u16, w: &mut Writer<'_>) {
        let fixed = match kind {
            Kind::Nt => 36,
            Kind::Two => 18,
            Kind::Named => 16,
        };
        self.encode(w, fixed, |piece, offsets, w| {
            if kind == Kind::Nt {
                return piece.nt_words(offsets).write(w);
            }
            SecondaryWords {
                total_parameters: piece.totals.parameters as u16,
                total_data: piece.totals.data as u16,
                parameter_count: piece.parameters.1.len() as u16,
                parameter_offset: offsets.0 as u16,
                parameter_displacement: piece.parameters.0 as u16,
                data_count: piece.data.1.len() as u16,
                data_offset: offsets.1 as u16,
                data_displacement: piece.data.0 as u16,
            }
            .write(w);
            if kind == Kind::Two {
                w.u16(fid);
            }
        });
    }

    fn nt_words(&self, offsets: (usize, usize)) -> NtPieceWords {
        NtPieceWords {
            total_parameters: self.totals.parameters as u32,
            total_data: self.totals.data as u32,
            parameter_count: self.parameters.1.len() as u32,
            parameter_offset: offsets.0 as u32,
            parameter_displacement: self.parameters.0 as u32,
            data_count: self.data.1.len() as u32,
            data_offset: offsets.1 as u32,
            data_displacement: self.data.0 as u32,
            setup_count: self.setup.len() as u8,
            ..NtPieceWords::default()
        }
    }

    fn encode(
        &self,
        w: &mut Writer<'_>,
        fixed: usize,
        words: impl FnOnce(&Self, (usize, usize), &mut Writer<'_>),
    ) {
        let parameter_offset = (w.position() + 1 + fixed + 2).next_multiple_of(4);
        let parameter_end = parameter_offset + self.parameters.1.len();
        // Without data the offset stays inside the message: Samba's clients refuse others.
        let data_offset = match self.data.1.is_empty() {
            true => parameter_end,
            false => parameter_end.next_multiple_of(4),
        };
        write_block(
            w,
            |w| words(self, (parameter_offset, data_offset), w),
            |w| {
                w.align(4);
                w.bytes(self.parameters.1);
                if !self.data.1.is_empty() {
                    w.align(4);
                    w.bytes(self.data.1);
                }
            },
        );
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
