/** Text and bytes as just-bash has them. */

/** Encodings of just-bash. */
export type BashEncoding = "utf8" | "utf-8" | "ascii" | "binary" | "base64" | "hex" | "latin1";

/** How a file is read or written, as just-bash says it. */
export type EncodingOption = BashEncoding | { encoding?: BashEncoding | null } | null | undefined;

/** The encoding that an option names; UTF-8 otherwise. */
export function encodingOf(option: EncodingOption): BashEncoding {
  return (typeof option === "string" ? option : option?.encoding) ?? "utf8";
}

/** The bytes of a text in an encoding. */
export function bytesOf(content: string | Uint8Array, option: EncodingOption): Uint8Array {
  return typeof content === "string" ? Buffer.from(content, encodingOf(option)) : content;
}

/** `path` without `.`, `..` and double slashes, with a slash in front. */
export function normalPath(path: string): string {
  const out: string[] = [];
  for (const name of path.split("/")) {
    if (name === "..") out.pop();
    else if (name !== "" && name !== ".") out.push(name);
  }
  return `/${out.join("/")}`;
}

/** A path that counts from a directory. */
export function resolvedPath(base: string, path: string): string {
  return normalPath(path.startsWith("/") ? path : `${base}/${path}`);
}
