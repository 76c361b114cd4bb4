//! A macro that defines the parameter words of a command once for both directions.

use ropeway_smb_wire::{FileTime, Reader, Result, Writer};

use crate::message::AndX;

/// A field of fixed size.
pub(crate) trait Field: Sized {
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    fn write(&self, writer: &mut Writer<'_>);
}

macro_rules! numbers {
    ($($type:ty: $method:ident),*) => { $(
        impl Field for $type {
            fn read(reader: &mut Reader<'_>) -> Result<Self> {
                reader.$method()
            }
            fn write(&self, writer: &mut Writer<'_>) {
                writer.$method(*self);
            }
        }
    )* };
}

numbers!(u8: u8, u16: u16, u32: u32, u64: u64);

/// Two's complement.
impl Field for i16 {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u16().map(u16::cast_signed)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.cast_unsigned());
    }
}

/// Two's complement.
impl Field for i32 {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u32().map(u32::cast_signed)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.cast_unsigned());
    }
}

/// UCHAR as truth: any value other than 0 is true ([MS-CIFS] 2.2.4.64.2, `Directory`).
impl Field for bool {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(reader.u8()? != 0)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u8(u8::from(*self));
    }
}

impl<const N: usize> Field for [u8; N] {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.array()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes(self);
    }
}

impl Field for FileTime {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Self::read(reader)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        Self::write(*self, writer);
    }
}

impl Field for AndX {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Self::read(reader)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        Self::write(*self, writer);
    }
}

/// Reserved bytes: ignored when read, zero when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved<const N: usize>;

impl<const N: usize> Field for Reserved<N> {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.skip(N)?;
        Ok(Self)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.zeros(N);
    }
}

/// Makes a structure of fields in wire order, with `read` and `write`.
macro_rules! words {
    ($(#[$outer:meta])* $vis:vis struct $name:ident {
        $($(#[$inner:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $($(#[$inner])* $vis $field: $type,)* }

        impl $name {
            /// Reads the fields.
            ///
            /// # Errors
            /// Truncation.
            $vis fn read(reader: &mut ropeway_smb_wire::Reader<'_>) -> ropeway_smb_wire::Result<Self> {
                Ok(Self {
                    $($field: <$type as $crate::words::Field>::read(reader)?,)*
                })
            }

            /// Appends the fields.
            $vis fn write(&self, writer: &mut ropeway_smb_wire::Writer<'_>) {
                $($crate::words::Field::write(&self.$field, writer);)*
            }
        }
    };
}
pub(crate) use words;

/// Implements [`Field`] for flags.
macro_rules! flag_fields {
    ($($flags:ty: $method:ident),*) => { $(
        impl $crate::words::Field for $flags {
            fn read(reader: &mut ropeway_smb_wire::Reader<'_>) -> ropeway_smb_wire::Result<Self> {
                Ok(Self::from_bits_retain(reader.$method()?))
            }
            fn write(&self, writer: &mut ropeway_smb_wire::Writer<'_>) {
                writer.$method(self.bits());
            }
        }
    )* };
}
pub(crate) use flag_fields;
