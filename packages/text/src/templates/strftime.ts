// `datetime.strftime` in the C locale.
import { unsupported } from "./faults.ts";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = "January February March April May June July August September October November December".split(" ");

const DIRECTIVE = /%([-_0^#]?)([\s\S]|$)/g;

/** Days since the first of January. */
const dayOfYear = (date: Date) =>
  Math.round(
    (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - Date.UTC(date.getFullYear(), 0, 1)) / 864e5,
  );

/** Year and week of ISO 8601. */
function isoWeek(date: Date): { year: number; week: number } {
  const thursday = new Date(date.getFullYear(), date.getMonth(), date.getDate() + 3 - ((date.getDay() + 6) % 7));
  return { year: thursday.getFullYear(), week: Math.floor(dayOfYear(thursday) / 7) + 1 };
}

/** A number of so many digits, filled with zeros or spaces unless the flag says otherwise. */
function padded(value: number, width: number, flag: string, fill = "0"): string {
  const by = flag === "-" ? "" : flag === "_" ? " " : flag === "0" ? "0" : fill;
  return by === "" ? String(value) : String(value).padStart(width, by);
}

function directive(date: Date, flag: string, letter: string): string {
  const name = (text: string) => (flag === "^" ? text.toUpperCase() : text);
  const number = (value: number, width = 2, fill = "0") => padded(value, width, flag, fill);
  const hour12 = date.getHours() % 12 || 12;
  const noon = date.getHours() < 12 ? "AM" : "PM";
  switch (letter) {
    case "a":
      return name((DAYS[date.getDay()] as string).slice(0, 3));
    case "A":
      return name(DAYS[date.getDay()] as string);
    case "b":
    case "h":
      return name((MONTHS[date.getMonth()] as string).slice(0, 3));
    case "B":
      return name(MONTHS[date.getMonth()] as string);
    case "c":
      return strftime(date, "%a %b %e %H:%M:%S %Y");
    case "C":
      return number(Math.floor(date.getFullYear() / 100));
    case "d":
      return number(date.getDate());
    case "D":
    case "x":
      return strftime(date, "%m/%d/%y");
    case "e":
      return number(date.getDate(), 2, " ");
    case "f":
      return String(date.getMilliseconds() * 1000).padStart(6, "0");
    case "F":
      return strftime(date, "%Y-%m-%d");
    case "g":
      return number(isoWeek(date).year % 100);
    case "G":
      return String(isoWeek(date).year);
    case "H":
      return number(date.getHours());
    case "I":
      return number(hour12);
    case "j":
      return number(dayOfYear(date) + 1, 3);
    case "k":
      return number(date.getHours(), 2, " ");
    case "l":
      return number(hour12, 2, " ");
    case "m":
      return number(date.getMonth() + 1);
    case "M":
      return number(date.getMinutes());
    case "n":
      return "\n";
    case "p":
      return flag === "#" ? noon.toLowerCase() : noon;
    case "P":
      return noon.toLowerCase();
    case "r":
      return strftime(date, "%I:%M:%S %p");
    case "R":
      return strftime(date, "%H:%M");
    case "S":
      return number(date.getSeconds());
    case "t":
      return "\t";
    case "T":
    case "X":
      return strftime(date, "%H:%M:%S");
    case "u":
      return String(date.getDay() || 7);
    case "U":
      return number(Math.floor((dayOfYear(date) + 7 - date.getDay()) / 7));
    case "V":
      return number(isoWeek(date).week);
    case "w":
      return String(date.getDay());
    case "W":
      return number(Math.floor((dayOfYear(date) + 7 - ((date.getDay() + 6) % 7)) / 7));
    case "y":
      return number(date.getFullYear() % 100);
    case "Y":
      return String(date.getFullYear());
    // Of a time without a zone.
    case "z":
    case "Z":
      return "";
    case "%":
      return "%";
    default:
      throw unsupported(`the date format %${flag}${letter}`);
  }
}

/** A date, in the zone of the process, by a format of C. */
export function strftime(date: Date, format: string): string {
  return format.replace(DIRECTIVE, (_, flag: string, letter: string) => {
    const known =
      flag === "" ||
      (flag === "-" ? "dmHIjMSyeklUWV".includes(letter) : "^".includes(flag) ? "aAbBh".includes(letter) : false);
    if (!known) throw unsupported(`the date format %${flag}${letter}`);
    return directive(date, flag, letter);
  });
}
