//! A walk over named fields that either writes them into a JSON object or reads them from one. The first thing that
//! cannot be read is remembered with its place; the walk goes on.

use hugemr_core::size::PageSize;
use serde_json::{Map, Value};

/// One object on the walk.
pub(super) struct Walk {
    value: Value,
    writing: bool,
    place: String,
    error: Option<String>,
}

/// A value that is one JSON value.
pub(super) trait Plain: Sized {
    fn write(&self) -> Value;
    fn read(value: &Value) -> Option<Self>;
    /// What a value ought to be.
    const WHAT: &'static str;
}

impl Plain for u64 {
    fn write(&self) -> Value {
        (*self).into()
    }
    fn read(value: &Value) -> Option<Self> {
        value.as_u64()
    }
    const WHAT: &'static str = "a whole number";
}

impl Plain for u32 {
    fn write(&self) -> Value {
        (*self).into()
    }
    fn read(value: &Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
    const WHAT: &'static str = "a small whole number";
}

impl Plain for bool {
    fn write(&self) -> Value {
        (*self).into()
    }
    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }
    const WHAT: &'static str = "true or false";
}

impl Plain for String {
    fn write(&self) -> Value {
        self.as_str().into()
    }
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
    const WHAT: &'static str = "a text";
}

impl Plain for PageSize {
    fn write(&self) -> Value {
        self.bytes().into()
    }
    fn read(value: &Value) -> Option<Self> {
        Self::new(value.as_u64()?).ok()
    }
    const WHAT: &'static str = "a page size in bytes";
}

impl Walk {
    pub(super) fn writing() -> Self {
        Self::of(Value::Object(Map::new()), true, String::new())
    }

    pub(super) fn reading(value: Value) -> Self {
        Self::of(value, false, String::new())
    }

    fn of(value: Value, writing: bool, place: String) -> Self {
        Self {
            value,
            writing,
            place,
            error: None,
        }
    }

    /// What was written, and what could not be read.
    pub(super) fn finish(self) -> (Value, Option<String>) {
        (self.value, self.error)
    }

    fn put(&mut self, name: &str, value: Value) {
        if let Value::Object(map) = &mut self.value {
            map.insert(name.to_owned(), value);
        }
    }

    /// The value of that name; `None` where it is missing or null.
    fn take(&self, name: &str) -> Option<Value> {
        self.value.get(name).filter(|v| !v.is_null()).cloned()
    }

    fn place_of(&self, name: &str) -> String {
        match (self.place.as_str(), name) {
            ("", name) => name.to_owned(),
            (place, "") => place.to_owned(),
            (place, name) => format!("{place}.{name}"),
        }
    }

    fn fail(&mut self, name: &str, what: &str) {
        let place = self.place_of(name);
        self.error.get_or_insert(format!("{place} is not {what}"));
    }

    fn inner<T>(
        &mut self,
        place: String,
        value: Value,
        to: &mut T,
        walk: impl Fn(&mut T, &mut Self),
    ) -> Value {
        let mut inner = Self::of(value, self.writing, place);
        walk(to, &mut inner);
        let (value, error) = inner.finish();
        if self.error.is_none() {
            self.error = error;
        }
        value
    }

    fn plain<T: Plain>(&mut self, name: &str, field: &mut Option<T>) {
        if self.writing {
            let value = field.as_ref().map_or(Value::Null, Plain::write);
            self.put(name, value);
        } else if let Some(value) = self.take(name) {
            *field = T::read(&value);
            if field.is_none() {
                self.fail(name, T::WHAT);
            }
        }
    }

    fn must<T: Plain>(&mut self, name: &str, field: &mut T) {
        if self.writing {
            let value = field.write();
            self.put(name, value);
        } else if let Some(value) = self.take(name).as_ref().and_then(T::read) {
            *field = value;
        } else {
            self.fail(name, T::WHAT);
        }
    }

    pub(super) fn number<T: Plain>(&mut self, name: &str, field: &mut Option<T>) {
        self.plain(name, field);
    }

    pub(super) fn text(&mut self, name: &str, field: &mut Option<String>) {
        self.plain(name, field);
    }

    pub(super) fn flag(&mut self, name: &str, field: &mut Option<bool>) {
        self.plain(name, field);
    }

    pub(super) fn maybe_page(&mut self, name: &str, field: &mut Option<PageSize>) {
        self.plain(name, field);
    }

    pub(super) fn must_number<T: Plain>(&mut self, name: &str, field: &mut T) {
        self.must(name, field);
    }

    pub(super) fn must_text(&mut self, name: &str, field: &mut String) {
        self.must(name, field);
    }

    pub(super) fn must_flag(&mut self, name: &str, field: &mut bool) {
        self.must(name, field);
    }

    /// A value that has a default, which stays where the name is missing.
    pub(super) fn or_default<T: Plain>(&mut self, name: &str, field: &mut T) {
        if self.writing || self.take(name).is_some() {
            self.must(name, field);
        }
    }

    pub(super) fn page(&mut self, name: &str, field: &mut PageSize) {
        self.must(name, field);
    }

    /// A limit: a number, or the word.
    pub(super) fn unlimited(&mut self, name: &str, field: &mut Option<u64>) {
        const WORD: &str = "unlimited";
        if self.writing {
            let value = field.map_or_else(|| WORD.into(), Value::from);
            self.put(name, value);
            return;
        }
        match self.take(name) {
            Some(Value::String(word)) if word == WORD => *field = None,
            Some(value) if value.is_u64() => *field = value.as_u64(),
            _ => self.fail(name, "a whole number, nor \"unlimited\""),
        }
    }

    /// One of a few words.
    pub(super) fn word<T: Copy + PartialEq>(
        &mut self,
        name: &str,
        field: &mut T,
        names: &[(T, &'static str)],
    ) {
        if self.writing {
            let word = names.iter().find(|(value, _)| value == field);
            let value = word.map_or(Value::Null, |(_, word)| (*word).into());
            self.put(name, value);
        } else if let Some(value) = self.take(name) {
            let known = names.iter().find(|(_, word)| value.as_str() == Some(word));
            match known {
                Some((known, _)) => *field = *known,
                None => self.fail(name, "a word that is known"),
            }
        }
    }

    /// The value of a list of plain values.
    pub(super) fn itself<T: Plain>(&mut self, field: &mut T) {
        if self.writing {
            self.value = field.write();
        } else if let Some(value) = T::read(&self.value) {
            *field = value;
        } else {
            self.fail("", T::WHAT);
        }
    }

    /// An object; where it is missing, everything in it stays as it is.
    pub(super) fn part<T>(&mut self, name: &str, to: &mut T, walk: impl Fn(&mut T, &mut Self)) {
        let place = self.place_of(name);
        if self.writing {
            let value = self.inner(place, Value::Object(Map::new()), to, walk);
            self.put(name, value);
        } else if let Some(value) = self.take(name) {
            if value.is_object() {
                self.inner(place, value, to, walk);
            } else {
                self.fail(name, "an object");
            }
        }
    }

    /// An object, or null.
    pub(super) fn maybe<T: Default>(
        &mut self,
        name: &str,
        to: &mut Option<T>,
        walk: impl Fn(&mut T, &mut Self),
    ) {
        if self.writing {
            match to {
                Some(to) => self.part(name, to, walk),
                None => self.put(name, Value::Null),
            }
        } else if self.take(name).is_some() {
            self.part(name, to.insert(T::default()), walk);
        }
    }

    pub(super) fn list<T: Default>(
        &mut self,
        name: &str,
        to: &mut Vec<T>,
        walk: impl Fn(&mut T, &mut Self),
    ) {
        self.list_from(name, to, T::default, walk);
    }

    /// A list of objects, each made by `new` before it is read.
    pub(super) fn list_from<T>(
        &mut self,
        name: &str,
        to: &mut Vec<T>,
        new: impl Fn() -> T,
        walk: impl Fn(&mut T, &mut Self),
    ) {
        let place = self.place_of(name);
        if self.writing {
            let mut values = Vec::new();
            for item in to {
                values.push(self.inner(place.clone(), Value::Object(Map::new()), item, &walk));
            }
            self.put(name, Value::Array(values));
            return;
        }
        let values = match self.take(name) {
            None => return,
            Some(Value::Array(values)) => values,
            Some(_) => return self.fail(name, "a list"),
        };
        for (i, value) in values.into_iter().enumerate() {
            let mut item = new();
            self.inner(format!("{place}[{i}]"), value, &mut item, &walk);
            to.push(item);
        }
    }

    /// A list, or null.
    pub(super) fn maybe_list<T: Default>(
        &mut self,
        name: &str,
        to: &mut Option<Vec<T>>,
        walk: impl Fn(&mut T, &mut Self),
    ) {
        if self.writing {
            match to {
                Some(to) => self.list(name, to, walk),
                None => self.put(name, Value::Null),
            }
        } else if self.take(name).is_some() {
            self.list(name, to.insert(Vec::new()), walk);
        }
    }
}
