"""The human audit: draw a blinded sample, label it, measure agreement, settle, apply.

::

    sampling.sample -> packet.write_packet -> (the page, or any editor) labels.LabelBook
      -> agree.agree -> adjudicate.adjudicate -> adjudicate.apply -> scores of "human"

Source: "Prevented is not protected", section 4.2 and appendices D and F.
"""
