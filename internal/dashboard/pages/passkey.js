"use strict";
// The one script of the pages: a form that names what to ask a passkey (data-options) is sent with the
// passkey's answer in its field "answer". The server checks everything; this only carries.

const bytes = text => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), c => c.charCodeAt(0));
const text = buffer => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

// For browsers that do not read and write WebAuthn's JSON themselves.
const creation = o => PublicKeyCredential.parseCreationOptionsFromJSON?.(o) ??
  {...o, challenge: bytes(o.challenge), user: {...o.user, id: bytes(o.user.id)}};
const request = o => PublicKeyCredential.parseRequestOptionsFromJSON?.(o) ??
  {...o, challenge: bytes(o.challenge), allowCredentials: []};
const json = credential => {
  if (credential.toJSON) return credential.toJSON();
  const response = {};
  for (const part of ["clientDataJSON", "attestationObject", "authenticatorData", "signature"])
    if (credential.response[part]) response[part] = text(credential.response[part]);
  return {id: credential.id, rawId: text(credential.rawId), type: credential.type, response};
};

const ask = async form => {
  if (!window.PublicKeyCredential) throw new Error("This browser has no passkeys on this page.");
  const answer = await fetch(form.dataset.options, {method: "POST", body: new URLSearchParams(new FormData(form))});
  const options = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(options.problem ?? "That did not work. Load the page again.");
  const credential = form.dataset.passkey === "create"
    ? await navigator.credentials.create({publicKey: creation(options)})
    : await navigator.credentials.get({publicKey: request(options)});
  form.elements.answer.value = JSON.stringify(json(credential));
  form.submit();
};

for (const form of document.querySelectorAll("form[data-passkey]"))
  form.addEventListener("submit", event => {
    event.preventDefault();
    const said = form.querySelector("[role=alert]"), button = form.querySelector("button");
    said.textContent = "";
    button.disabled = true;
    ask(form).catch(error => {
      button.disabled = false;
      said.textContent = error.name === "NotAllowedError"
        ? "No passkey was used. Nothing was changed." : error.message;
    });
  });
