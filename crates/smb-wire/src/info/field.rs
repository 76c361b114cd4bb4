//! Structures of fixed size, written down once for both directions.

use crate::create::AccessMask;
use crate::{FileAttributes, FileTime, Reader, Result, Writer};

/// A field of fixed size.
pub(super) trait Field: Sized {
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
    fn write(&self, writer: &mut Writer<'_>);
}

impl Field for u8 {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u8()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u8(*self);
    }
}

impl Field for u16 {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u16()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(*self);
    }
}

impl Field for u32 {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u32()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(*self);
    }
}

impl Field for u64 {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u64()
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(*self);
    }
}

/// BOOLEAN: one byte, everything but 0 is true ([MS-DTYP] 2.2.4).
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

/// For flags in 32 bits.
macro_rules! flag_fields {
    ($($flags:ty),*) => { $(
        impl $crate::info::field::Field for $flags {
            fn read(reader: &mut $crate::Reader<'_>) -> $crate::Result<Self> {
                Ok(Self::from_bits_retain(reader.u32()?))
            }
            fn write(&self, writer: &mut $crate::Writer<'_>) {
                writer.u32(self.bits());
            }
        }
    )* };
}
pub(super) use flag_fields;

flag_fields!(FileAttributes, AccessMask);

/// Makes a structure of fields in wire order, and `reserved` bytes after them, an [`Information`](super::Information).
macro_rules! information {
    ($(#[$outer:meta])* pub struct $name:ident: $class_trait:ident = $class_type:ident::$class:ident, reserved $reserved:literal {
        $($(#[$inner:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$inner])* pub $field: $type,)* }

        impl $crate::info::Information for $name {
            const NAME: &'static str = stringify!($name);

            fn read(reader: &mut $crate::Reader<'_>) -> $crate::Result<Self> {
                let fields = Self {
                    $($field: <$type as $crate::info::field::Field>::read(reader)?,)*
                };
                reader.skip($reserved)?;
                Ok(fields)
            }

            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                $($crate::info::field::Field::write(&self.$field, writer);)*
                writer.zeros($reserved);
            }
        }

        impl $crate::info::$class_trait for $name {
            const CLASS: $crate::info::$class_type = $crate::info::$class_type::$class;
        }
    };
}
pub(super) use information;
