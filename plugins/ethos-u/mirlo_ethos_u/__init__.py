"""Target `ethos-u`: int8 regions of a model as TOSA, compiled by Vela for Arm's Ethos-U55, U65 and U85."""

from mirlo.extend.target import Target

TARGET = Target("ethos-u", "Arm Ethos-U55, U65 and U85, by TOSA and Vela", codegen="mirlo_ethos_u.generator:EthosU")
